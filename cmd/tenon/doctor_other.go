//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/tenon-project/tenon/internal/view"
)

// examineMachine refuses: what it reads are the files of Linux.
func examineMachine(context.Context, string, string) (view.Diagnosis, error) {
	return view.Diagnosis{}, errors.New("only a Linux machine can be examined: run tenon doctor there, or use " +
		"--node NODE")
}

func examineGPUs(context.Context, string) (view.Diagnosis, error) {
	return view.Diagnosis{}, errors.New("only a Linux machine can be examined: run tenon doctor gpu there")
}
