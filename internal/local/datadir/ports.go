package datadir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
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
	// Descheduler serves its metrics and what is below /apis/v1.
	Descheduler       Service = "descheduler"
	DeschedulerHealth Service = "descheduler-health"
)

// MaxSchedulers is the largest number of scheduler replicas that have ports.
const MaxSchedulers = 3

// Services returns every service, in the order ports are handed out.
func Services() []Service {
	services := []Service{APIServer, Webhooks, ManagerHealth, SchedulerSecure, Diagnostics, Kubelets}
	for replica := 1; replica < MaxSchedulers; replica++ {
		services = append(services, SchedulerSecure.Of(replica), Diagnostics.Of(replica))
	}
	return append(services, Descheduler, DeschedulerHealth)
}

// Of returns the service of a replica: the service itself for replica 0, "SERVICE-2" for replica 1, and so on.
func (s Service) Of(replica int) Service {
	if replica == 0 {
		return s
	}
	return s + Service("-"+strconv.Itoa(replica+1))
}

// Ports are the loopback ports of one start. Each is held open from Ports until Take, so that no other
// process gets it in between.
type Ports struct {
	Moved []Move // services that did not get their port of the last start

	listeners map[Service]net.Listener
	ephemeral portRange
}

type portRange struct{ first, last int }

func (r portRange) contains(port int) bool { return r.first <= port && port <= r.last }

// Below firstPort are the ports of well-known services.
const (
	firstPort = 10_000
	lastPort  = 65_535
)

func ephemeralPorts() (r portRange) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &r.first, &r.last)
	}
	if err != nil {
		return portRange{first: 32768, last: 60999}
	}
	return r
}

// Move is a service that did not get the port it had.
type Move struct {
	Service  Service
	Old, New int
	// Unsafe: the old port is one that the kernel gives to outgoing connections.
	Unsafe bool
}

// Ports opens a port for each service, the saved one where it is free, and saves them. New ports are outside the range
// from which the kernel takes ports for outgoing connections: a child of this process opens its port again after a
// crash, and a connection must not have taken it.
func (d Dir) Ports() (*Ports, error) {
	saved, err := d.SavedPorts()
	if err != nil {
		return nil, err
	}
	p := &Ports{listeners: make(map[Service]net.Listener, len(Services())), ephemeral: ephemeralPorts()}
	for _, s := range Services() {
		if err == nil {
			err = p.open(s, saved[s])
		}
	}
	if err == nil {
		err = d.writeJSON("ports.json", p.numbers())
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Port returns the number of a service's port.
func (p *Ports) Port(s Service) int { return p.listeners[s].Addr().(*net.TCPAddr).Port }

// Address returns 127.0.0.1:PORT of a service.
func (p *Ports) Address(s Service) string { return p.listeners[s].Addr().String() }

// Listener returns the open listener of a service that this process serves itself.
func (p *Ports) Listener(s Service) net.Listener { return p.listeners[s] }

// Release closes the port of a service so that a child may open it. The number stays known.
func (p *Ports) Release(s Service) error { return p.listeners[s].Close() }

// Close closes every port; whatever serves one must have ended.
func (p *Ports) Close() {
	for _, l := range p.listeners {
		_ = l.Close() // a second time where it was served
	}
}

func (p *Ports) open(s Service, saved int) error {
	if saved != 0 && !p.ephemeral.contains(saved) {
		if l, err := listen(saved); err == nil {
			p.listeners[s] = l
			return nil
		}
	}
	l, err := p.listenAnywhere()
	if err != nil {
		return fmt.Errorf("open a loopback port for %s: %w", s, err)
	}
	p.listeners[s] = l
	if saved != 0 {
		p.Moved = append(p.Moved, Move{Service: s, Old: saved, New: p.Port(s), Unsafe: p.ephemeral.contains(saved)})
	}
	return nil
}

func (p *Ports) listenAnywhere() (net.Listener, error) {
	for range 200 { // of 55,000 ports
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if p.ephemeral.contains(port) {
			continue
		}
		if l, err := listen(port); !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
	return listen(0)
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
