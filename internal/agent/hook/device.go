package hook

import (
	"errors"

	"github.com/tenon-project/tenon/internal/agent/inject"
)

// Devices implements Handler. Who decides about CPUs plays no role.
func (s *Service) Devices(c Container) (answer inject.Answer, err error) {
	err = s.withDevices(&c, func(n *inject.Node, d *inject.Container) (err error) {
		answer, err = inject.Decide(n, d)
		return err
	})
	return answer, err
}

// CheckDevices implements Handler.
func (s *Service) CheckDevices(c Container) error { return s.withDevices(&c, inject.Check) }

// withDevices asks package inject about a container. A Refusal holds the container back, whatever else its pod uses:
// inject refuses only pods that request devices, were given some, or have some that are not theirs.
func (s *Service) withDevices(c *Container, ask func(*inject.Node, *inject.Container) error) error {
	if s.o.Devices == nil {
		return nil
	}
	err := ask(s.o.Devices(), &inject.Container{
		Name: c.Name, Namespace: c.Namespace, Labels: c.Labels, Annotations: c.Annotations,
		Asks: s.o.Engine.Devices(c.UID), Has: c.Devices,
	})
	refusal, ok := errors.AsType[*inject.Refusal](err)
	if !ok {
		return err
	}
	blocked := engineContainer(c).Blocked(refusal.Cause, "%s", refusal.Text)
	s.report(c, blocked, false)
	return blocked
}
