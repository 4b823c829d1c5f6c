package datadir

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// Service is something that listens on a loopback port of its own.
type Service string

// The services of a local cluster.
const (
	APIServer       Service = "apiserver"
	Webhooks        Service = "webhooks"
	ManagerHealth   Service = "manager-health"
	SchedulerSecure Service = "scheduler-secure"
	Diagnostics     Service = "diagnostics"
	Kubelets        Service = "kubelets"
)

// MaxSchedulers is the largest number of scheduler replicas that have ports.
const MaxSchedulers = 3

// Services returns every service, in the order ports are handed out.
func Services() []Service {
	services := []Service{APIServer, Webhooks, ManagerHealth, SchedulerSecure, Diagnostics, Kubelets}
	for replica := 1; replica < MaxSchedulers; replica++ {
		services = append(services, SchedulerSecure.Of(replica), Diagnostics.Of(replica))
	}
	return services
}

// Of returns the service of a replica: the service itself for replica 0, "SERVICE-2" for replica 1, and so on.
func (s Service) Of(replica int) Service {
	if replica == 0 {
		return s
	}
	return s + Service("-"+strconv.Itoa(replica+1))
}

// Ports are the loopback ports of one start. Each is held open from Ports until Take, so that nobody else gets it
// in between.
type Ports struct {
	Moved []Move // services whose port of the last start was taken by somebody else

	listeners map[Service]net.Listener
	served    map[Service]bool // handed over by Listener
}

// Move is a service that could not get the port it had.
type Move struct {
	Service  Service
	Old, New int
}

// Ports opens a port for each service, the saved one where it is free, and saves them.
func (d Dir) Ports() (*Ports, error) {
	saved, err := d.SavedPorts()
	if err != nil {
		return nil, err
	}
	p := &Ports{listeners: make(map[Service]net.Listener, len(Services())), served: map[Service]bool{}}
	for _, s := range Services() {
		if err := p.open(s, saved[s]); err != nil {
			p.Close()
			return nil, err
		}
	}
	if err := d.writeJSON("ports.json", p.numbers()); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Port returns the number of a service's port.
func (p *Ports) Port(s Service) int { return p.listeners[s].Addr().(*net.TCPAddr).Port }

// Address returns 127.0.0.1:PORT of a service.
func (p *Ports) Address(s Service) string { return p.listeners[s].Addr().String() }

// Listener hands over the open listener of a service that this process serves itself; whoever serves closes it.
func (p *Ports) Listener(s Service) net.Listener {
	p.served[s] = true
	return p.listeners[s]
}

// Release closes the port of a service so that a child may open it. The number stays known.
func (p *Ports) Release(s Service) error { return p.listeners[s].Close() }

// Close closes every port that was not handed over.
func (p *Ports) Close() {
	for s, l := range p.listeners {
		if !p.served[s] {
			_ = l.Close()
		}
	}
}

func (p *Ports) open(s Service, saved int) error {
	if saved != 0 {
		if l, err := listen(saved); err == nil {
			p.listeners[s] = l
			return nil
		}
	}
	l, err := listen(0)
	if err != nil {
		return fmt.Errorf("open a loopback port for %s: %w", s, err)
	}
	p.listeners[s] = l
	if saved != 0 {
		p.Moved = append(p.Moved, Move{Service: s, Old: saved, New: p.Port(s)})
	}
	return nil
}

func (p *Ports) numbers() map[Service]int {
	numbers := make(map[Service]int, len(p.listeners))
	for s := range p.listeners {
		numbers[s] = p.Port(s)
	}
	return numbers
}

// SavedPorts returns the ports of the running cluster, or of the last start. It is empty where there was none.
func (d Dir) SavedPorts() (map[Service]int, error) {
	saved := map[Service]int{}
	if err := d.readJSON("ports.json", &saved); err != nil {
		return nil, err
	}
	for s, n := range saved {
		if n < 1 || n > 65535 {
			return nil, &Corrupt{File: d.path("ports.json"), Err: fmt.Errorf("%s: %d is not a port", s, n)}
		}
	}
	return saved, nil
}

func listen(port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
