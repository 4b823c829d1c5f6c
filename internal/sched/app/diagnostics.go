package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/explanation"
	"github.com/tenon-project/tenon/internal/sched/diag/ginroute"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/view"
)

// diagnostics returns the handler of diag over this scheduler. Without may every caller may read everything.
func (s *Scheduler) diagnostics(ctx context.Context, may authorizer.Authorizer) (http.Handler, error) {
	c := s.answers(ctx, may)
	var err error
	if c.Mounts, err = ginroute.Mounts(c.Plugins); err != nil {
		return nil, fmt.Errorf("diagnostics: %w", err)
	}
	h, err := diag.New(c)
	if err != nil {
		return nil, fmt.Errorf("diagnostics: %w", err)
	}
	return h, nil
}

// answers is what diagnostics read of this scheduler, without what plugins serve by themselves.
func (s *Scheduler) answers(ctx context.Context, may authorizer.Authorizer) diag.Config {
	var last func() (string, []byte, error)
	if s.journal != nil {
		last = func() (string, []byte, error) { return journal.Last(s.options.Journal) }
	}
	return diag.Config{
		Journal:  last,
		Leading:  s.core.Tracker.Leading.Load,
		Ready:    s.known,
		View:     s.store.Known,
		NodeInfo: s.live.NodeInfo,
		Pod:      s.pod,
		WhatIf:   s.whatIf.Answer,
		Fixes:    s.whatIf.Fixes,
		Evaluate: func(ctx context.Context, pod *corev1.Pod) (view.Verdict, error) {
			v, err := s.live.Evaluate(ctx, pod)
			return s.reporter.Own(pod, v), err
		},
		Queue: func(pod *corev1.Pod) *view.Queue {
			return s.reporter.Queued(pod, s.core.SchedulingQueue, &s.config.ComponentConfig)
		},
		Configuration: s.configuration,
		LeftAlone:     s.core.Tracker.RemainingBackoff,
		Decisions:     s.decisions,
		Flags:         s.flags,
		Plugins:       s.core.Plugins.List(),
		Authorizer:    may,
		// Each change is logged with the caller's name.
		Audit: func(r *http.Request, value string) {
			name := "unauthenticated"
			if user, ok := request.UserFrom(r.Context()); ok {
				name = user.GetName()
			}
			klog.FromContext(ctx).Info("Accepted a request of the diagnostics API", "method", r.Method, "path",
				r.URL.Path, "value", value, "user", name)
		},
	}
}

// explanations is what answers ScheduleExplanations.
func (s *Scheduler) explanations(ctx context.Context) *explanation.Writer {
	c := s.answers(ctx, nil)
	return &explanation.Writer{
		Client: s.client, Objects: kube.NewExplanationInformer(s.client),
		Pods: s.config.InformerFactory.Core().V1().Pods().Informer(),
		Ready: func() error {
			if !s.core.Tracker.Leading.Load() {
				return errors.New("the instance is not leader")
			}
			return s.known()
		},
		Pod: func(namespace, name string) *corev1.Pod {
			if pod := s.pod(namespace, name); pod != nil {
				return pod
			}
			members := s.whatIf.Members(namespace + "/" + name)
			for _, m := range members {
				if m.Spec.NodeName == "" {
					return m
				}
			}
			if len(members) > 0 {
				return members[0]
			}
			return nil
		},
		Explain: c.Explain, WhatIf: c.WhatIf,
	}
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
