package main

import (
	"fmt"
	"slices"
	"strings"
)

// command is a call of runc.
type command struct {
	args []string // all of them
	verb string   // "" where there is none, such as runc --version
	id   string   // of the container, for the verbs that are folded
	// bundle is the folder of config.json, "" for the current one.
	bundle string
	// resources is the value of update's flag of that name: "-" for standard input, "" where it is not given.
	resources string
	// cpuset flags of update, by name without dashes: runc takes them instead of resources.
	flags map[string]string
}

// globalValues are the flags before the verb whose value is an argument of its own.
var globalValues = []string{"log", "log-format", "root", "criu", "rootless"}

// verbValues are those behind the verbs that are folded.
var verbValues = map[string][]string{
	"create": {"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"},
	"run":    {"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"},
	"update": {
		"resources", "r", "blkio-weight", "cpu-period", "cpu-quota", "cpu-burst", "cpu-share", "cpu-rt-period",
		"cpu-rt-runtime",
		"cpuset-cpus", "cpuset-mems", "memory", "memory-reservation", "memory-swap", "pids-limit", "l3-cache-schema",
		"mem-bw-schema",
		"cpu-idle",
	},
}

// parse reads what the wrapper must know of a call; the rest stays as it is.
func parse(args []string) (command, error) {
	c := command{args: args, flags: map[string]string{}}
	rest := args
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		_, _, n := flag(rest, globalValues)
		rest = rest[min(n, len(rest)):]
	}
	if len(rest) == 0 {
		return c, nil
	}
	c.verb, rest = rest[0], rest[1:]
	values, folded := verbValues[c.verb]
	if !folded {
		return c, nil
	}
	for len(rest) > 0 {
		if !strings.HasPrefix(rest[0], "-") || rest[0] == "-" {
			c.id, rest = rest[0], rest[1:]
			continue
		}
		name, value, n := flag(rest, values)
		if n > len(rest) {
			return c, fmt.Errorf("flag %s of %s has no value", rest[0], c.verb)
		}
		rest = rest[n:]
		switch name {
		case "bundle", "b":
			c.bundle = value
		case "resources", "r":
			c.resources = value
		default:
			c.flags[name] = value
		}
	}
	if c.id == "" {
		return c, fmt.Errorf("%s names no container", c.verb)
	}
	return c, nil
}

// flag reads the flag at the head of args: -name, --name, --name=value, --name value. n is the number of arguments that
// it takes; more than there are where its value is missing.
func flag(args []string, withValue []string) (name, value string, n int) {
	name, value, joined := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	switch {
	case joined, !slices.Contains(withValue, name):
		return name, value, 1
	case len(args) < 2:
		return name, "", 2
	}
	return name, args[1], 2
}
