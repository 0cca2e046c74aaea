# Sourced by the scripts beside it: a private environment that needs nothing but python3.
#   .cache/uv   uv, in a virtual environment of its own
#   .venv       wigwag and what it needs, in the versions of uv.lock
# A stamp of what went in makes the second time quick.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
UV_VERSION=0.13.7
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy VIRTUAL_ENV=
# Many images set this. Here, hundreds of short processes would each compile whatever they import.
export PYTHONDONTWRITEBYTECODE=

say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }
die() { printf '%s\n' "$*" >&2; exit 1; }

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  die "wigwag needs python3 3.11 or newer; found: $(python3 --version 2>&1 || echo none)"

uv() {
  if [ ! -x .cache/uv/bin/uv ] || [ "$(cat .cache/uv/version 2>/dev/null)" != "$UV_VERSION" ]; then
    say "setting up uv $UV_VERSION in .cache/uv …"
    python3 -m venv --clear .cache/uv ||
      die "python3 cannot make a virtual environment: install your system's python3-venv package and try again"
    .cache/uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
    echo "$UV_VERSION" > .cache/uv/version
  fi
  .cache/uv/bin/uv "$@"
}

# sync NAME [uv sync options]: brings .venv up to uv.lock, unless NAME was synced from the same inputs before.
sync() {
  local name=$1 stamp; shift
  stamp="$(cat uv.lock pyproject.toml | cksum) $(python3 -c 'import sys; print(sys.version, sys.prefix)')"
  [ -x .venv/bin/wigwag ] && [ "$(cat ".cache/synced-$name" 2>/dev/null)" = "$stamp" ] && return
  say "installing what uv.lock pins into .venv …"
  uv sync --quiet --locked --inexact --python "$(python3 -c 'import sys; print(sys.executable)')" "$@"
  mkdir -p .cache && echo "$stamp" > ".cache/synced-$name"
}
