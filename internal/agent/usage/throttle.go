package usage

import (
	"path"
	"time"

	"github.com/tenon-project/tenon/internal/core/window"
)

// throttle is for how long a pod was throttled.
type throttle struct {
	own, containers int64 // nanoseconds since the last turn of the pod, of its own group and of the others
	total           int64 // nanoseconds since the pod was first read
	counter         window.Counter
	average         window.Mean // thousandths of a second in a second
}

// limited is a group that the kernel may throttle: that of a pod or of a container.
type limited struct {
	uid  string
	own  bool // it is that of the pod
	stat file
	last int64 // nanoseconds since the group exists
	read bool
	tick int // in which the group was there last
}

// followLimited makes c.limited the groups that there are.
func (c *Collector) followLimited() {
	see := func(uid, at string, own bool) {
		l := c.limited[at]
		if l == nil {
			base := "sys/fs/cgroup"
			if c.v1 {
				base = path.Join(base, "cpu")
			}
			l = &limited{uid: uid, own: own, stat: file{name: path.Join(base, at, "cpu.stat")}}
			c.limited[at] = l
		}
		l.tick = c.tick
	}
	for uid, at := range c.groups {
		see(uid, at, true)
	}
	c.o.Pods.Containers(func(uid, at string) { see(uid, at, false) })
	for at, l := range c.limited {
		if l.tick != c.tick {
			l.stat.close()
			delete(c.limited, at)
		}
	}
}

// readThrottled measures the pods whose turn it is, and puts into the Sample for how long they were throttled. A kernel
// counts only the time in which a group was at its own limit: a pod was throttled as long as its containers were or,
// where that is more, its own group.
func (c *Collector) readThrottled(now time.Time) {
	clear(c.sample.Throttled)
	for _, l := range c.limited {
		g := c.pods[l.uid]
		if g == nil || !g.turn(l.uid, c.tick) {
			continue
		}
		nanoseconds, ok := c.throttled(l)
		if !ok {
			continue
		}
		if !l.read && c.tick <= memoryTicks {
			l.last = nanoseconds // what was before this agent does not count
		}
		spent := max(0, nanoseconds-l.last)
		if l.last, l.read = nanoseconds, true; l.own {
			g.throttle.own += spent
		} else {
			g.throttle.containers += spent
		}
	}
	for uid, g := range c.pods {
		if !g.turn(uid, c.tick) {
			continue
		}
		t := &g.throttle
		spent := max(t.own, t.containers)
		if t.own, t.containers = 0, 0; spent > 0 {
			c.sample.Throttled[uid] = time.Duration(spent)
		}
		t.total += spent
		if milli, ok := t.counter.Advance(now, t.total); ok {
			t.average.Add(c.average, now, milli)
		}
	}
}

// throttled reads for how long a group was throttled since it exists.
func (c *Collector) throttled(l *limited) (nanoseconds int64, ok bool) {
	text := l.stat.read(c.root, c.buf)
	if c.v1 {
		nanoseconds, ok = field(text, "throttled_time ")
		return nanoseconds, ok
	}
	micro, ok := field(text, "throttled_usec ")
	return micro * 1000, ok && micro < 1<<53
}
