package hook

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// Devices implements Handler. Who decides about CPUs plays no role.
func (s *Service) Devices(c Container) (answer inject.Answer, err error) {
	begun := s.o.Clock.Now()
	err = s.withDevices(&c, func(n *inject.Node, d *inject.Container) (err error) {
		answer, err = inject.Decide(n, d)
		return err
	})
	if s.o.Reports != nil && s.o.Agent.Devices().HasDevices() {
		s.o.Reports.Injected(s.o.Clock.Since(begun))
	}
	return answer, err
}

// CheckDevices implements Handler.
func (s *Service) CheckDevices(c Container) error {
	err := s.withDevices(&c, inject.Check)
	if err != nil && s.o.Reports != nil {
		s.o.Reports.Caught()
	}
	return err
}

// withDevices asks package inject about a container. A Refusal holds the container back, whatever else its pod uses:
// inject refuses only pods that request devices, were given some, or have some that are not theirs.
func (s *Service) withDevices(c *Container, ask func(*inject.Node, *inject.Container) error) error {
	if s.o.Agent.Devices() == nil {
		return nil
	}
	if s.o.Agent.Devices().HasDevices() {
		if err := s.refuseUnknown(c); err != nil {
			return s.reportBlocked(c, err)
		}
	}
	blocked, err := s.askDevices(c, ask)
	if blocked == nil {
		return err
	}
	s.report(c, blocked, false)
	return blocked
}

// askDevices returns what package inject has against a container; nil for nothing.
func (s *Service) askDevices(c *Container, ask func(*inject.Node, *inject.Container) error) (*apply.Blocked, error) {
	pod := s.trusted(&c.Pod)
	err := ask(s.o.Agent.Devices(), &inject.Container{
		Name: c.Name, Namespace: c.Namespace, Labels: pod.Labels, Annotations: pod.Annotations,
		Asks: s.o.Engine.Devices(c.UID), Has: c.Devices,
	})
	refusal, ok := errors.AsType[*inject.Refusal](err)
	if !ok {
		return nil, err
	}
	return engineContainer(c).Blocked(refusal.Cause, "%s", refusal.Text), nil
}

// mismatchAge is how long a difference must last before it is reported: a runtime first makes a container's group,
// which can use everything, and then restricts it.
const mismatchAge = 2 * time.Second

// CompareDevices compares what running containers can use of devices with what was allocated to their pods: some may
// have been started while no agent answered, or by a runtime that did not ask. A difference that is found again after
// mismatchAge is reported once, until it changes; the container is left alone. read reads what the processes of a
// cgroup can use, false where there are none. Containers whose cgroup the runtime does not report are found by their
// id below the pod's.
func (s *Service) CompareDevices(read func(group string) (host.Access, bool, error)) error {
	s.mu.Lock()
	var running []*Container
	for _, known := range s.containers {
		if known.seen != nil && !known.ended {
			running = append(running, known.seen)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, c := range running {
		group, err := s.o.Engine.Locate(s.identify(c))
		if err != nil {
			continue // its group is not there yet, or not any more
		}
		can, lives, err := read(group)
		if err != nil || !lives {
			errs = append(errs, err)
			continue
		}
		blocked, err := s.askDevices(c, func(n *inject.Node, d *inject.Container) error {
			return inject.Compare(n, d, &can)
		})
		errs = append(errs, err)
		if s.isNewMismatch(c.ID, blocked) {
			s.report(c, blocked, false)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("compare the devices of running containers: %w", err)
	}
	return nil
}

// Visible returns the devices that the environments of running containers name, by the pod's UID and the container's
// name.
func (s *Service) Visible() map[string]map[string][]host.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]map[string][]host.Device{}
	for _, c := range s.containers {
		if c.ended || len(c.visible) == 0 {
			continue
		}
		if out[c.uid] == nil {
			out[c.uid] = map[string][]host.Device{}
		}
		out[c.uid][c.name] = c.visible
	}
	return out
}

// isNewMismatch reports whether a difference, nil for none, has lasted and was not reported yet.
func (s *Service) isNewMismatch(id string, blocked *apply.Blocked) bool {
	detail, now := "", s.o.Clock.Now()
	if blocked != nil {
		detail = blocked.Detail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.containers[id]
	if known == nil {
		return false
	}
	if known.mismatch != detail {
		known.mismatch, known.since, known.reported = detail, now, false
	}
	if detail == "" || known.reported || now.Sub(known.since) < mismatchAge {
		return false
	}
	known.reported = true
	return true
}
