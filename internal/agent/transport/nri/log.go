package nri

import (
	"context"
	"fmt"

	nrilog "github.com/containerd/nri/pkg/log"
	"k8s.io/klog/v2"
)

// stubLevel is the verbosity from which on the stub's own messages are shown.
const stubLevel = 4

// logger passes on what the stub says.
type logger struct{ to klog.Logger }

var _ nrilog.Logger = logger{}

func (l logger) say(level, format string, args ...any) {
	l.to.V(stubLevel).Info("NRI stub", "level", level, "text", fmt.Sprintf(format, args...))
}

func (l logger) Debugf(_ context.Context, format string, args ...any) {
	l.say("debug", format, args...)
}

func (l logger) Infof(_ context.Context, format string, args ...any) { l.say("info", format, args...) }

func (l logger) Warnf(_ context.Context, format string, args ...any) {
	l.say("warning", format, args...)
}

func (l logger) Errorf(_ context.Context, format string, args ...any) {
	l.say("error", format, args...)
}
