// Command foldrunc stands in for runc on a machine that has fewer CPUs than the one that is played: it folds the
// cpusets of containers (see package fold) and hands everything else to runc untouched.
//
// On create and run it rewrites config.json in the bundle, on update the resources on standard input. A JSON file
// beside the program, named after it with .json behind, says where runc and the records are.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// settings is the file beside the program.
type settings struct {
	// Runc is the path of the real runc.
	Runc string `json:"runc"`
	// Store is the folder of the records.
	Store string `json:"store"`
	// CPUs is the number of real CPUs.
	CPUs int `json:"cpus"`
}

func main() {
	err := run(os.Args[1:])
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode()) // runc has said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "foldrunc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	s, err := load()
	if err != nil {
		return err
	}
	c, err := parse(args)
	if err != nil {
		return err
	}
	w := wrapper{settings: s, store: fold.Store{Dir: s.Store}}
	switch c.verb {
	case "create", "run":
		return w.create(c)
	case "update":
		return w.update(c)
	}
	return syscall.Exec(s.Runc, append([]string{s.Runc}, args...), os.Environ())
}

func load() (settings, error) {
	self, err := os.Executable()
	if err != nil {
		return settings{}, err
	}
	text, err := os.ReadFile(self + ".json")
	if err != nil {
		return settings{}, err
	}
	var s settings
	if err := json.Unmarshal(text, &s); err != nil {
		return settings{}, fmt.Errorf("%s.json: %w", self, err)
	}
	if s.Runc == "" || s.Store == "" || s.CPUs < 1 {
		return settings{}, fmt.Errorf("%s.json: runc, store and cpus must be set", self)
	}
	return s, nil
}
