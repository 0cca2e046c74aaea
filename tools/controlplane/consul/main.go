// consul is Consul's own command, built from the module proxy: its released module can be required, but not installed
// by name, because it replaces modules of its own.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/hashicorp/consul/command"
	"github.com/hashicorp/consul/command/cli"
	mcli "github.com/mitchellh/cli"
)

func main() {
	log.SetOutput(io.Discard)
	ui := &cli.BasicUI{BasicUi: mcli.BasicUi{Writer: os.Stdout, ErrorWriter: os.Stderr}}
	c := &mcli.CLI{Name: "consul", Args: os.Args[1:], Commands: command.RegisteredCommands(ui), HelpFunc: mcli.BasicHelpFunc("consul")}
	code, err := c.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
