package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/explanation"
	"github.com/tenon-project/tenon/internal/sched/diag/ginroute"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
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
	c := diag.Config{
		Scheduler: observed{s}, WhatIf: s.whatIf, Log: klog.FromContext(ctx),
		Decisions: s.decisions, Flags: s.flags, Plugins: s.core.Plugins.List(), Authorizer: may,
	}
	if s.journal != nil {
		c.Journal = s.journal
	}
	return c
}

// observed is the diag.Scheduler.
type observed struct{ s *Scheduler }

func (o observed) Leading() bool                             { return o.s.core.Tracker.Leading.Load() }
func (o observed) Ready() error                              { return o.s.known() }
func (o observed) View(node string) *ledger.View             { return o.s.store.Known(node) }
func (o observed) NodeInfo(node string) (fwk.NodeInfo, bool) { return o.s.live.NodeInfo(node) }
func (o observed) Pod(namespace, name string) *corev1.Pod    { return o.s.pod(namespace, name) }

func (o observed) Claims(pod *corev1.Pod) []view.HeldClaim {
	for _, f := range o.s.core.Profiles { // all have the same claims
		held, published := claims.Of(f.SharedDRAManager(), pod)
		return describe.Claims(held, published, pod.Spec.NodeName, o.View(pod.Spec.NodeName))
	}
	return nil
}

func (o observed) Evaluate(ctx context.Context, pod *corev1.Pod) (view.Verdict, error) {
	v, err := o.s.live.Evaluate(ctx, pod)
	return o.s.reporter.Own(pod, v), err
}

func (o observed) Queue(pod *corev1.Pod) *view.Queue {
	return o.s.reporter.Queued(pod, o.s.core.SchedulingQueue, &o.s.config.ComponentConfig)
}

func (o observed) RemainingBackoff(pod *corev1.Pod) time.Duration {
	return o.s.core.Tracker.RemainingBackoff(pod)
}

func (o observed) Configuration() (*view.Configuration, error) { return o.s.configuration() }

// explanations is what answers ScheduleExplanations.
func (s *Scheduler) explanations(ctx context.Context) *explanation.Writer {
	c := s.answers(ctx, nil)
	return &explanation.Writer{
		Client: s.client, Objects: kube.NewExplanationInformer(s.client),
		Pods:      s.config.InformerFactory.Core().V1().Pods().Informer(),
		Scheduler: explained{&c, s.whatIf}, WhatIf: s.whatIf,
	}
}

// explained is the explanation.Scheduler.
type explained struct {
	*diag.Config
	whatIf *whatif.Engine
}

func (e explained) Ready() error {
	if !e.Leading() {
		return errors.New("the instance is not leader")
	}
	return e.Config.Ready()
}

func (e explained) Pod(namespace, name string) *corev1.Pod {
	if pod := e.Config.Pod(namespace, name); pod != nil {
		return pod
	}
	members := e.whatIf.Members(namespace + "/" + name)
	for _, m := range members {
		if m.Spec.NodeName == "" {
			return m
		}
	}
	if len(members) > 0 {
		return members[0]
	}
	return nil
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
