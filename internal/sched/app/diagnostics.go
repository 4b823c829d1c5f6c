package app

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/ginroute"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/view"
)

// diagnostics returns the handler of diag over this scheduler. Without may every caller may read everything.
func (s *Scheduler) diagnostics(ctx context.Context, may authorizer.Authorizer) (http.Handler, error) {
	plugins := s.plugins.List()
	mounts, err := ginroute.Mounts(plugins)
	if err != nil {
		return nil, fmt.Errorf("diagnostics: %w", err)
	}
	var last func() (string, []byte, error)
	if s.journal != nil {
		last = func() (string, []byte, error) { return journal.Last(s.options.Journal) }
	}
	h, err := diag.New(diag.Config{
		Journal:  last,
		Leading:  s.tracker.Leading.Load,
		Ready:    s.known,
		View:     s.store.Known,
		NodeInfo: s.live.NodeInfo,
		Pod:      s.pod,
		WhatIf:   s.whatIf.Answer,
		Fixes:    s.whatIf.Fixes,
		Evaluate: s.live.Evaluate,
		Queue: func(pod *corev1.Pod) *view.Queue {
			return s.reporter.Queued(pod, s.core.SchedulingQueue, &s.config.ComponentConfig)
		},
		LeftAlone:  s.tracker.RemainingBackoff,
		Decisions:  s.decisions,
		Flags:      s.flags,
		Plugins:    plugins,
		Mounts:     mounts,
		Authorizer: may,
		// Each change is logged with the caller's name.
		Audit: func(r *http.Request, value string) {
			name := "unauthenticated"
			if user, ok := request.UserFrom(r.Context()); ok {
				name = user.GetName()
			}
			klog.FromContext(ctx).Info("Accepted a request of the diagnostics API", "method", r.Method, "path",
				r.URL.Path, "value", value, "user", name)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("diagnostics: %w", err)
	}
	return h, nil
}

// pod returns a pod of the informer or, if there is none of that name, one that its kubelet rejected; nil for neither.
func (s *Scheduler) pod(namespace, name string) *corev1.Pod {
	pod, err := s.pods().Pods(namespace).Get(name)
	if err != nil {
		return follow.RejectedPod(s.failed, namespace, name)
	}
	return pod
}

// pods lists the pods that have not ended.
func (s *Scheduler) pods() corelisters.PodLister {
	return s.config.InformerFactory.Core().V1().Pods().Lister()
}
