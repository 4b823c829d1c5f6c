// Package command is the command line of tenon-agent: its verbs run, probe and doctor, and their flags.
package command
