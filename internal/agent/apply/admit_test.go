package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// late is a container whose group the runtime makes when it starts it.
func (r *rig) late(uid string, role qos.Role, cpus string) apply.Container {
	r.t.Helper()
	c := r.bind(uid, role, cpus)
	r.must(r.wire.Rmdir(c.Group))
	c.ID, c.Group = "c", ""
	return c
}

// appear does what such a runtime does after Admit: group, set and process in one go.
func (r *rig) appear(c apply.Container, cpus string) apply.Container {
	r.t.Helper()
	c.Group = c.PodGroup + "/c"
	r.must(r.wire.MkdirAll(c.Group))
	r.must(r.wire.Tree.Write(c.Group, "cpuset.cpus", cpus))
	if _, err := r.wire.Spawn(c.Group); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestAContainerIsAdmittedBeforeItsGroupExists(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	r.watch = true
	shared := r.bind("s", qos.SharedPool, "")
	r.must(r.run(shared))
	c := r.late("x", qos.Exclusive, "0-3")
	if err := r.engine.Start(t.Context(), c); !errors.Is(err, apply.ErrNoGroup) {
		t.Errorf("Start without a group: got %v, want ErrNoGroup", err)
	}
	r.must(r.engine.Admit(t.Context(), c, "0-3"))
	if got := r.cpus(shared); got != "4-11" {
		t.Errorf("after Admit the shared pod has %q, want 4-11", got)
	}
	there := r.appear(c, "0-3")
	r.must(r.engine.Start(t.Context(), c)) // which finds the group by the container's id
	if got := r.cpus(there); got != "0-3" {
		t.Errorf("the container has %q, want 0-3", got)
	}
	if len(r.overlap) > 0 {
		t.Errorf("overlaps: %v", r.overlap)
	}
	// A shared one beside it, that may be given the current pool and nothing wider.
	other := r.late("o", qos.SharedPool, "")
	r.must(r.engine.Admit(t.Context(), other, "4-11"))
	r.must(r.engine.Admit(t.Context(), other, "4-5"))
	if err := r.engine.Admit(t.Context(), other, "0-11"); !errors.Is(err, apply.ErrHandOverPending) ||
		!strings.Contains(err.Error(), `only "4-11" is free`) {
		t.Errorf("a set that was free once: got %v, want ErrHandOverPending with what is free", err)
	}
}

func TestAdmitIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	early := r.late("early", qos.SharedPool, "")
	if err := r.engine.Admit(t.Context(), early, "0-11"); !errors.Is(err, apply.ErrNotReady) {
		t.Errorf("before the list of pods is known: got %v, want ErrNotReady", err)
	}
	r.complete()
	first := r.bind("first", qos.Exclusive, "1-2")
	r.must(r.run(first))
	r.engine.Delete("first") // by force: its process lives on
	for name, tt := range map[string]struct {
		c    apply.Container
		cpus string
		want error
	}{
		"CPUs that a dying pod still has": {
			r.late("second", qos.Exclusive, "2-3"), "2-3",
			apply.ErrHandOverPending,
		},
		"another set than its own":               {r.late("third", qos.Exclusive, "4-5"), "4", apply.ErrEnforcement},
		"no set at all":                          {r.late("fourth", qos.Exclusive, "6-7"), "", apply.ErrEnforcement},
		"a set that cannot be read":              {r.late("fifth", qos.SharedPool, ""), "all", apply.ErrEnforcement},
		"an exclusive pod without an allocation": {r.late("foreign", qos.Exclusive, ""), "8", apply.ErrUnallocated},
		"an unknown pod": {
			apply.Container{PodUID: "x", PodGroup: "kubepods/podx", ID: "c"},
			"8", apply.ErrUnknownPod,
		},
	} {
		err := r.engine.Admit(t.Context(), tt.c, tt.cpus)
		var blocked *apply.Blocked
		if !errors.Is(err, tt.want) || !errors.As(err, &blocked) {
			t.Errorf("%s: %v, want a *Blocked for %v", name, err, tt.want)
		}
	}
	if got := r.cpus(first); got != "1-2" {
		t.Errorf("the dying pod's set became %q", got)
	}
}
