"""Files and directories, followed by inotify with polling as a safety net. No network."""
