package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Exit codes of every verb.
const (
	ExitOK          = 0 // done, or the question is answered, whatever the answer
	ExitUnexpected  = 1
	ExitUsage       = 2 // bad usage or bad input
	ExitNegative    = 3 // with --exit-code: the answer is no
	ExitUnreachable = 4 // cluster or component unreachable, or forbidden
	ExitUnhealthy   = 5 // a check of doctor or status fails, or leave or make-room is not done
	ExitInterrupted = 130
)

// failure is an error with the exit code it asks for. Errors of other packages may bring their own ExitCode method.
type failure struct {
	code int
	err  error
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }
func (f failure) ExitCode() int { return f.code }

func usagef(format string, args ...any) error {
	return failure{ExitUsage, fmt.Errorf(format, args...)}
}

// errNegative ends a verb with ExitNegative and no message: the answer is already printed.
var errNegative = failure{ExitNegative, errors.New("the answer is negative")}

// errUnhealthy ends a verb that checks with ExitUnhealthy and no message: the findings are already printed.
var errUnhealthy = failure{ExitUnhealthy, errors.New("a check failed")}

// remedy is the text of an error and, when the API server could not be reached, what to do.
func remedy(err error) string {
	if address := (*url.Error)(nil); errors.As(err, &address) && !errors.Is(err, context.Canceled) {
		return err.Error() + " (is the cluster running? KUBECONFIG or --kubeconfig chooses it)"
	}
	return err.Error()
}

func exitCode(err error) int {
	var own interface{ ExitCode() int }
	var network net.Error
	var address *url.Error
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &own):
		return own.ExitCode()
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsTimeout(err),
		errors.As(err, &network), errors.As(err, &address):
		return ExitUnreachable
	}
	return ExitUnexpected
}
