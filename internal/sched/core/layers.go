package core

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// layers lists all that surrounds kube-scheduler, from the inside out. What passes a seam meets the last layer first.
// ARCHITECTURE.md draws this list.
func (c *Core) layers(ctx context.Context) []layer {
	all := base{c}
	return slices.DeleteFunc([]layer{
		audited{all},                    // Profile: cards that pods have, for claims
		guarded{all},                    // Profile: panics of plugins
		claiming{all},                   // Profile: devices for claims, which gangs share
		logged{all},                     // Cache: accounts come first; changed nodes
		counted{all},                    // Queue, Next: events that may let a pod fit
		protected{all},                  // Profile: pods that preemption spares
		held{all},                       // Queue: gangs until the queue runs
		ranked{all},                     // Profile: nodes for equal pods
		remembered{all},                 // Schedule: pods that all nodes refuse
		retried{all},                    // Schedule: nodes that the API server refused
		reserved{all},                   // Fail: Reservations, which are not pods
		reported{all},                   // Fail: why a pod has no node
		shared{all},                     // Next: pods that start alone, beside gangs
		gated{all, ctx},                 // Next: accounts are known, few Bindings are open
		sourced{all},                    // Next: the pods of a simulation or a journal
		together{all},                   // Next, Schedule, Fail: gangs
		noted{all},                      // Schedule: the last decisions
		recorded{all, c.options.Record}, // all six: a journal, or what replays it
	}, func(l layer) bool { return !l.acts() })
}

// layer is a part around kube-scheduler. It also implements the seams that it wraps.
type layer interface {
	// acts reports whether the options ask for the layer.
	acts() bool
	// inside has the layers that this one must surround, where they act.
	inside() []layer
}

// NextPod takes a pod from the queue.
type NextPod = hooks.NextPod

// SchedulePod chooses a node.
type SchedulePod = loop.Schedule

// The seams. Each method returns what takes the place of inner.
type (
	cacheSeam interface {
		Cache(inner snapshot.Cache) snapshot.Cache
	}
	queueSeam interface {
		Queue(inner podqueue.Queue) podqueue.Queue
	}
	nextSeam interface {
		Next(inner NextPod) NextPod
	}
	scheduleSeam interface {
		Schedule(inner SchedulePod) SchedulePod
	}
	failSeam interface {
		Fail(inner loop.Fail) loop.Fail
	}
	// profileSeam is called for each profile, with its scheduler name.
	profileSeam interface {
		profile(ctx context.Context, name string, inner framework.Framework) (framework.Framework, error)
	}
	// preparation is work on the core as a whole, before the layer wraps anything.
	preparation interface {
		prepare(ctx context.Context) error
	}
)

// put puts layers around kube-scheduler, which reads these fields on each use.
func (c *Core) put(ctx context.Context, layers []layer) error {
	if err := checkOrder(layers); err != nil {
		return err
	}
	for _, l := range layers {
		if l, ok := l.(preparation); ok {
			if err := l.prepare(ctx); err != nil {
				return err
			}
		}
		if l, ok := l.(cacheSeam); ok {
			c.Scheduler.Cache = l.Cache(c.Scheduler.Cache)
		}
		if l, ok := l.(queueSeam); ok {
			c.SchedulingQueue = l.Queue(loop.Of(c.Scheduler).Queue())
		}
		if l, ok := l.(nextSeam); ok {
			c.NextEntity = podqueue.Entities(l.Next(podqueue.Pods(c.NextEntity)))
		}
		if l, ok := l.(scheduleSeam); ok {
			c.SchedulePod = l.Schedule(c.SchedulePod)
		}
		if l, ok := l.(failSeam); ok {
			c.FailureHandler = l.Fail(c.FailureHandler)
		}
		if l, ok := l.(profileSeam); ok {
			for i := range c.options.Config.ComponentConfig.Profiles {
				name := c.options.Config.ComponentConfig.Profiles[i].SchedulerName
				wrapped, err := l.profile(ctx, name, c.Profiles[name])
				if err != nil {
					return fmt.Errorf("profile %s: %w", name, err)
				}
				c.Profiles[name] = wrapped
			}
		}
	}
	return nil
}

// checkOrder returns an error if a layer does not surround one that it must surround.
func checkOrder(layers []layer) error {
	for i, l := range layers {
		for _, needed := range l.inside() {
			if slices.ContainsFunc(layers[i:], func(o layer) bool { return nameOf(o) == nameOf(needed) }) {
				return fmt.Errorf("layer %s must surround layer %s", nameOf(l), nameOf(needed))
			}
		}
	}
	return nil
}

// nameOf returns the name of a layer, which is that of its type.
func nameOf(l layer) string { return reflect.TypeOf(l).Name() }

// base is a layer that always acts and surrounds none in particular.
type base struct{ c *Core }

func (base) acts() bool      { return true }
func (base) inside() []layer { return nil }
