package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/device"
	local "github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const pace = 30 * time.Second

// machine is a Root with drivers that answer what the test says.
type machine struct {
	*testing.T
	root    host.Root
	boot    string
	drivers []inventory.Driver
	v       *inventory.Inventory
	changes int // events
}

func newMachine(t *testing.T, drivers ...inventory.Driver) *machine {
	m := &machine{T: t, root: host.Root{Dir: t.TempDir()}, boot: "one", drivers: drivers}
	m.start()
	return m
}

// start is an agent that starts.
func (m *machine) start() {
	m.Helper()
	v, err := inventory.New(inventory.Options{
		Root: m.root, Boot: m.boot, Dir: statedir.Of(m.root), Drivers: m.drivers, Pace: pace, Clock: clock.RealClock{},
		Changed: func() { m.changes++ },
	})
	if err != nil {
		m.Fatal(err)
	}
	m.v = v
}

func (m *machine) drop(text string) {
	m.Helper()
	at := m.root.Path(host.DropDirs()[0], "f.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
		m.Fatal(err)
	}
}

// look refreshes after the pace, and compares what is known then: UUID, "lost", and the code of what is wrong.
func (m *machine) look(when, want string) {
	m.Helper()
	later(pace)
	_, err := m.v.Refresh(m.Context())
	got := described(m.v.Devices(nil))
	if err != nil {
		got += "; " + err.Error()
	}
	if got != want {
		m.Errorf("%s: got %q, want %q", when, got, want)
	}
}

func described(list []host.Dropped) string {
	var words []string
	for _, d := range list {
		word := d.UUID
		if d.IsLost {
			word += " lost"
		}
		if s := d.Status; s != nil && (!s.Healthy || s.Degraded) {
			word += " " + s.ErrCode
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func later(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the clock is the bubble's

// scripted is a driver whose devices, and what is wrong with them, are in say: UUID, or UUID:CODE.
type scripted struct {
	say  []string
	err  error
	hang chan struct{} // it answers when this is closed; nil answers at once
}

func (s *scripted) driver(name string) inventory.Driver {
	return inventory.Driver{Name: name, Devices: func() ([]host.Dropped, error) {
		if s.hang != nil {
			<-s.hang
		}
		var list []host.Dropped
		for _, word := range s.say {
			uuid, code, bad := strings.Cut(word, ":")
			d := host.Dropped{Type: "gpu", UUID: uuid}
			if bad {
				d.Status = host.Fails(code, "it is %s", code)
			}
			list = append(list, d)
		}
		return list, s.err
	}}
}

func TestADriverThatHangsMakesItsDevicesUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gpus, nics := &scripted{say: []string{"a", "b"}}, &scripted{say: []string{"n"}}
		m := newMachine(t, gpus.driver("gpus"), nics.driver("nics"))
		m.look("at first", "a, b, n")
		gpus.hang = make(chan struct{})
		const late = "; driver gpus: has not answered for 10 s"
		begun := time.Now()
		m.look("while it hangs", "a DriverHangs, b DriverHangs, n"+late)
		if took := time.Since(begun) - pace; took != 10*time.Second {
			t.Errorf("it is waited for %v, want 10 s", took)
		}
		begun = time.Now()
		m.look("still", "a DriverHangs, b DriverHangs, n"+late)
		if took := time.Since(begun) - pace; took != 0 {
			t.Errorf("it is waited for %v more", took)
		}
		m.start()
		m.look("for an agent that starts meanwhile", "a lost DriverHangs, b lost DriverHangs, n"+late)
		close(gpus.hang)
		m.look("when it answers again", "a Recovering, b Recovering, n")
		gpus.hang = nil
		m.look("and again", "a Recovering, b Recovering, n")
		m.look("and a third time", "a, b, n")
	})
}

func TestProbesOfADevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{say: []string{"a", "b:NoActivePort"}}
		m := newMachine(t, s.driver("nics"))
		m.look("one that never worked", "a, b NoActivePort")
		s.say = []string{"a:NoActivePort", "b"}
		m.look("the first failure", "a Suspect, b Recovering")
		m.look("the second", "a Suspect, b Recovering")
		m.look("the third", "a NoActivePort, b")
		s.say = []string{"b"}
		m.look("one that vanishes", "a lost Lost, b")
		m.start()
		m.look("another agent knows of it", "a lost Lost, b")
		s.err = errors.New("file: bad")
		s.say = nil
		m.look("a file that cannot be read", "a lost Unread, b lost Suspect; driver nics: file: bad")
		m.boot, s.err = "two", nil
		m.start()
		m.look("after a reboot without it", "")
	})
}

func TestEventsOfADriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := make(chan inventory.Fault)
		s := &scripted{say: []string{"a", "b"}}
		d := s.driver("gpus")
		calls := 0
		d.Watch = func(ctx context.Context, report func(inventory.Fault)) error {
			calls++
			if calls == 1 {
				return errors.New("not yet")
			}
			for {
				select {
				case f := <-faults:
					report(f)
				case <-ctx.Done():
					return nil
				}
			}
		}
		m := newMachine(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.v.Run(ctx) }()
		m.look("before any", "a, b")
		xid := inventory.Fault{UUID: "a", Probe: device.Damages, Status: host.Fails("Xid79", "fell off the bus")}
		faults <- xid
		synctest.Wait()
		if got := described(m.v.Devices(nil)); got != "a Xid79, b" || m.changes != 1 {
			t.Errorf("after an event: %q, %d changes reported", got, m.changes)
		}
		for range 60 {
			m.look("good probes change nothing", "a Xid79, b")
		}
		s.say = []string{"a:NoDeviceFile", "b"}
		m.look("another fault is not why", "a Xid79, b")
		s.say = []string{"a", "b"}
		shown := &devicev1alpha1.Device{Spec: devicev1alpha1.DeviceSpec{Devices: []devicev1alpha1.DeviceInfo{{
			Type: "gpu", ID: "a", Conditions: []metav1.Condition{{Type: "Healthy", Status: metav1.ConditionFalse}},
		}}}}
		if got := described(m.v.Devices(&devicev1alpha1.Device{})); got != "a Xid79, b" {
			t.Errorf("an object from before the event: %q", got)
		}
		m.v.Devices(shown)
		shown.Spec.Devices[0].Conditions = nil
		m.v.Devices(shown)
		m.look("a person has removed the condition", "a Recovering, b")
		m.look("then good probes count", "a Recovering, b")
		m.look("all three", "a, b")
		xid.UUID = ""
		faults <- xid
		m.look("an event of no device in particular", "a Xid79, b Xid79")
		m.boot = "two"
		m.start()
		m.look("after a reboot", "a, b")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Drivers are asked at their pace, drop files each time; a program that writes them decides itself what works.
func TestDropFilesAreAddedToWhatDriversKnow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		m := newMachine(t, inventory.Driver{Name: "gpus", Devices: func() ([]host.Dropped, error) {
			asked++
			return []host.Dropped{{
				Type: "gpu", UUID: "GPU-a", Vendor: "nvidia", Minor: "3", Labels: map[string]string{"x": "1"},
				Topology: host.DroppedTopology{NodeID: "1", BusID: "0000:3b:00.0", Bridges: []string{"r", "b"}},
			}}, nil
		}})
		m.drop(`[{"uuid":"a","model":"H100","resources":{"gpu-memory":"80Gi"},"labels":{"y":"2"},
			"status":{"healthy":false,"errCode":"7"},"topology":{"busID":"0000:3b:00.0","socketID":"0"}},
			{"type":"dpu","uuid":"d"}]`)
		if changed, err := m.v.Refresh(t.Context()); !changed || err != nil {
			t.Errorf("at first: changed %t, %v", changed, err)
		}
		want := []host.Dropped{{
			Type: "gpu", UUID: "GPU-a", Vendor: "nvidia", Model: "H100", Minor: "3",
			Labels: map[string]string{"x": "1", "y": "2"}, Resources: map[string]string{"gpu-memory": "80Gi"},
			Topology: host.DroppedTopology{
				SocketID: "0", NodeID: "1", BusID: "0000:3b:00.0", Bridges: []string{"r", "b"},
			},
			Status: &host.DroppedStatus{ErrCode: "7"},
		}, {Type: "dpu", UUID: "d"}}
		if diff := cmp.Diff(want, m.v.Devices(nil)); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
		if changed, err := m.v.Refresh(t.Context()); changed || err != nil {
			t.Errorf("the same: changed %t, %v", changed, err)
		}
		m.drop(`[{"uuid":"p","topology":{"busID":"0000:3b:00.0"}},{"uuid":"q","topology":{"busID":"0000:3b:00.0"}}]`)
		if _, err := m.v.Refresh(t.Context()); err != nil || described(m.v.Devices(nil)) != "GPU-a, p, q" {
			t.Errorf("two parts of a GPU are devices of their own: %v, %s", err, described(m.v.Devices(nil)))
		}
		m.drop(`[{"uuid":"GPU-a"}]`)
		if changed, err := m.v.Refresh(t.Context()); !changed || err != nil || described(m.v.Devices(nil)) != "GPU-a" {
			t.Errorf("it works again: changed %t, %v, %s", changed, err, described(m.v.Devices(nil)))
		}
		if asked != 1 {
			t.Errorf("the driver was asked %d times within its pace", asked)
		}
	})
}

// Merging loses no device, makes none of two, and never makes a device that one source says does not work healthy.
func TestMergedSources(t *testing.T) {
	t.Parallel()
	root, ctx := host.Root{Dir: t.TempDir()}, t.Context()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (list []host.Dropped) {
			uuids := rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 4, rapid.ID[int]).Draw(t, name)
			for _, n := range uuids {
				d := host.Dropped{Type: "gpu", UUID: fmt.Sprint(n)}
				d.Topology.BusID = fmt.Sprint("bus", n%4)
				if rapid.Bool().Draw(t, "fails") {
					d.Status = host.Fails(name, "")
				}
				list = append(list, d)
			}
			return list
		}
		first, second := draw("first"), draw("second")
		got := map[string]host.Dropped{}
		v, err := inventory.New(inventory.Options{Root: root, Clock: clock.RealClock{}, Drivers: []inventory.Driver{
			{Name: "first", Devices: func() ([]host.Dropped, error) { return first, nil }},
			{Name: "second", Devices: func() ([]host.Dropped, error) { return second, nil }},
		}})
		if _, read := v.Refresh(ctx); err != nil || read != nil {
			t.Fatal(err, read)
		}
		merged := v.Devices(nil)
		for _, d := range merged {
			if _, twice := got[d.UUID]; twice {
				t.Fatalf("%s is there twice: %+v and %+v make %+v", d.UUID, first, second, merged)
			}
			got[d.UUID] = d
		}
		for i, list := range [][]host.Dropped{first, second} {
			for _, d := range list {
				device, known := got[d.UUID]
				if !known && i == 1 { // known by its address
					n := slices.IndexFunc(merged, func(o host.Dropped) bool {
						return o.Topology.BusID == d.Topology.BusID
					})
					if n < 0 {
						t.Fatalf("%s is left out of %+v", d.UUID, merged)
					}
					device = merged[n]
				}
				if !known && i == 0 || d.Status != nil && device.Status == nil {
					t.Fatalf("%+v became %+v of %+v", d, device, merged)
				}
			}
		}
	})
}

// Simulated machines have drivers and a drop file of the same devices: their objects are what the drop file describes.
func TestDriversAndDropFilesOfPresetsAgree(t *testing.T) {
	t.Parallel()
	published := 0
	for _, preset := range local.Presets() {
		root := host.Root{Dir: filepath.Join(t.TempDir(), preset.Name)}
		testkit.Check(t, preset.Write(root.Dir))
		v, err1 := inventory.New(inventory.Options{
			Root: root, Drivers: inventory.Sysfs(root), Clock: clock.RealClock{},
		})
		_, err2 := v.Refresh(t.Context())
		dropped, err3 := host.ReadDropped(root)
		now := metav1.Now()
		want, err4 := probe.Device(probe.Input{NodeName: "n"}, dropped, nil, now)
		got, err5 := probe.Device(probe.Input{NodeName: "n"}, v.Devices(nil), nil, now)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Errorf("%s: %v", preset.Name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-drop file +both):\n%s", preset.Name, diff)
		}
		if got != nil {
			published++
		}
	}
	if published < 6 {
		t.Errorf("%d presets have devices, want 6", published)
	}
}

// A program that has ended says nothing of what processes use now.
func TestAnOldDropFileSaysNothingOfProcesses(t *testing.T) {
	t.Parallel()
	root := host.Root{Dir: t.TempDir()}
	file := root.Path("var/run/tenon/device-infos/nvidia.json")
	testkit.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
	testkit.Check(t, os.WriteFile(file, []byte(`[{"uuid":"GPU-a","processes":{"12":5}}]`), 0o600))
	for age, want := range map[time.Duration]int{0: 1, time.Hour: 0} {
		written := time.Now().Add(-age)
		testkit.Check(t, os.Chtimes(file, written, written))
		v, err := inventory.New(inventory.Options{Root: root, Clock: clock.RealClock{}})
		testkit.Check(t, err)
		_, err = v.Refresh(t.Context())
		testkit.Check(t, err)
		if got := len(v.Processes()); got != want || len(v.Devices(nil)) != 1 {
			t.Errorf("after %s: processes of %d GPUs, want %d", age, got, want)
		}
	}
}
