package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// port is the host's end of the line to a guest. It is safe for concurrent use: scripts run side by side.
type port struct {
	conn net.Conn

	mu      sync.Mutex // guards the fields below, and writing to conn
	next    int
	waiting map[int]chan wire.Answer
	err     error // why no more answers come
}

func newPort(conn net.Conn) *port {
	p := &port{conn: conn, waiting: map[int]chan wire.Answer{}}
	go p.listen()
	return p
}

// ask sends a request and waits for its answer.
func (p *port) ask(ctx context.Context, r wire.Request) (wire.Answer, error) {
	reply := make(chan wire.Answer, 1)
	if err := p.send(&r, reply); err != nil {
		return wire.Answer{}, err
	}
	select {
	case a, ok := <-reply:
		if !ok {
			return wire.Answer{}, fmt.Errorf("the line to the guest broke: %w", p.fault())
		}
		return a, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, r.ID)
		p.mu.Unlock()
		return wire.Answer{}, ctx.Err()
	}
}

func (p *port) send(r *wire.Request, reply chan wire.Answer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("the line to the guest broke: %w", p.err)
	}
	p.next++
	r.ID = p.next
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	p.waiting[r.ID] = reply
	if _, err := p.conn.Write(append(line, '\n')); err != nil {
		delete(p.waiting, r.ID)
		return fmt.Errorf("write to the guest: %w", err)
	}
	return nil
}

func (p *port) fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// listen hands out answers until the line breaks.
func (p *port) listen() {
	lines := bufio.NewReader(p.conn)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			p.breakOff(err)
			return
		}
		var a wire.Answer
		if err := json.Unmarshal(line, &a); err != nil {
			p.breakOff(fmt.Errorf("the guest answered %q: %w", line, err))
			return
		}
		p.mu.Lock()
		reply, ok := p.waiting[a.ID]
		delete(p.waiting, a.ID)
		p.mu.Unlock()
		if ok {
			reply <- a
		}
	}
}

func (p *port) breakOff(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(errors.New("no more answers"), err)
	for id, reply := range p.waiting {
		close(reply)
		delete(p.waiting, id)
	}
}
