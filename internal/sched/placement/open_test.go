package placement

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhichErrorsLeaveABindingOpen(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":                 {nil, false},
		"a conflict":           {apierrors.NewConflict(pods, "p", errors.New("bound")), false},
		"not found":            {apierrors.NewNotFound(pods, "p"), false},
		"the server failed":    {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"more than that":       {apierrors.NewServiceUnavailable("later"), true},
		"the request was late": {apierrors.NewTimeoutError("late", 1), true},
		"408": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}, true,
		},
		"refused": {fmt.Errorf("dial: %w", syscall.ECONNREFUSED), false},
		"reset":   {fmt.Errorf("read: %w", syscall.ECONNRESET), true},
	} {
		if got := isOpen(c.err); got != c.want {
			t.Errorf("%s: open is %t, want %t", name, got, c.want)
		}
	}
}
