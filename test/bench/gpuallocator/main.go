package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"

	"github.com/tenon-project/tenon/internal/core/device"
)

const gpus = 16

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gpuallocator:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 3 && args[0] == "peer" { // hidden: one call of go-gpuallocator
		free, err := strconv.ParseUint(args[1], 10, gpus)
		if err != nil {
			return err
		}
		k, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		chosen, took := allocate(free, k)
		fmt.Fprintln(out, chosen, took.Nanoseconds())
		return nil
	}
	flags := flag.NewFlagSet("gpuallocator", flag.ContinueOnError)
	states := flags.Int("states", 8, "random states for each number of GPUs")
	limit := flags.Duration("limit", 10*time.Second, "bound on one call of go-gpuallocator")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *states < 1 || *limit <= 0 {
		return errors.New("-states and -limit must be more than 0")
	}
	inventory, err := device.NewInventory(spec(), nil, nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "| GPUs | go-gpuallocator, median | worst | Tenon, median | worst | W, Tenon's minus the other |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|---:|---:|")
	random := rand.New(rand.NewPCG(16, 16))
	for k := 1; k <= gpus; k++ {
		r := row{limit: *limit}
		for range *states {
			if err := r.measure(inventory, draw(random, k), k); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, r.text(k))
	}
	return nil
}

// draw returns k or more free GPUs.
func draw(random *rand.Rand, k int) (free uint64) {
	for n, order := k+random.IntN(gpus-k+1), random.Perm(gpus); n > 0; n-- {
		free |= 1 << order[n-1]
	}
	return free
}

// row is the calls for one number of GPUs.
type row struct {
	limit       time.Duration
	peer, tenon []time.Duration
	gain        []int64 // W of Tenon's set above the peer's, where that has answered
}

func (r *row) measure(inventory *device.Inventory, free uint64, k int) error {
	ours, took, err := choose(inventory, free, k)
	if err != nil {
		return err
	}
	r.tenon = append(r.tenon, took)
	theirs, took, err := r.ask(free, k)
	if err != nil {
		return err
	}
	if r.peer = append(r.peer, took); took < r.limit {
		r.gain = append(r.gain, weight(ours)-weight(theirs))
	}
	return nil
}

// ask is a call of go-gpuallocator in a process of its own; limit where it did not answer in time.
func (r *row) ask(free uint64, k int) (chosen uint64, took time.Duration, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.limit)
	defer cancel()
	call := exec.CommandContext(ctx, self, "peer", strconv.FormatUint(free, 10), strconv.Itoa(k))
	var said bytes.Buffer
	call.Stdout, call.Stderr = &said, os.Stderr
	if err := call.Run(); ctx.Err() != nil {
		return 0, r.limit, nil
	} else if err != nil {
		return 0, 0, fmt.Errorf("go-gpuallocator for %d of %b: %w", k, free, err)
	}
	_, err = fmt.Sscan(said.String(), &chosen, &took)
	return chosen, took, err
}

func (r *row) text(k int) string {
	say := func(times []time.Duration) (median, worst string) {
		slices.Sort(times)
		return r.say(times[len(times)/2]), r.say(times[len(times)-1])
	}
	peer, peerWorst := say(r.peer)
	tenon, tenonWorst := say(r.tenon)
	gain := "–"
	if len(r.gain) > 0 {
		gain = fmt.Sprintf("%d to %d", slices.Min(r.gain), slices.Max(r.gain))
	}
	return fmt.Sprintf("| %d | %s | %s | %s | %s | %s |", k, peer, peerWorst, tenon, tenonWorst, gain)
}

func (r *row) say(d time.Duration) string {
	switch {
	case d >= r.limit:
		return fmt.Sprintf("> %v s", r.limit.Seconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d.Nanoseconds())/1e6)
}

// timed is how long a call takes: the median of several where it is short.
func timed(call func()) time.Duration {
	var times []time.Duration
	for len(times) < 15 && (len(times) == 0 || times[0] < time.Millisecond) {
		start := time.Now()
		call()
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// link is how two GPUs are connected: lanes of NVLink, and closeness on the PCI tree.
func link(i, j int) (lanes, level int64) {
	switch {
	case i/2 == j/2:
		return 4, device.SameSwitch
	case i/4 == j/4:
		return 0, device.SameRoot
	case i/8 == j/8:
		return 0, device.SameNode
	}
	return 0, device.Remote
}

func weight(set uint64) (sum int64) {
	for i := range gpus {
		for j := range i {
			if lanes, level := link(i, j); (set>>i)&(set>>j)&1 == 1 {
				sum += 100*lanes + level
			}
		}
	}
	return sum
}

func id(i int) string { return fmt.Sprintf("GPU-%02d", i) }

func spec() *device.Spec {
	s := &device.Spec{}
	for i := range gpus {
		root := fmt.Sprint("pci", i/4)
		s.Devices = append(s.Devices, device.Device{
			Type: device.GPU, ID: id(i), Minor: int32(i), Module: -1, Healthy: true, Vendor: device.NVIDIAGPU,
			Total: device.Vector{device.Bytes: 80 << 30},
			Location: device.Location{
				NUMAID: i / 8, Bus: id(i), PCIe: root, Bridges: []string{root, fmt.Sprint("switch", i/2)},
			},
		})
		for j := range i {
			if lanes, _ := link(i, j); lanes > 0 {
				s.Links = append(s.Links, device.Link{Type: device.GPU, A: id(i), B: id(j), Lanes: lanes})
			}
		}
	}
	return s
}

// choose is Tenon's answer, with the record of what the pod gets.
func choose(inventory *device.Inventory, free uint64, k int) (chosen uint64, took time.Duration, err error) {
	account := device.NewView(inventory, func(yield func(*device.Holding) bool) {
		for i := range gpus {
			h := &device.Holding{UID: id(i), Grants: []device.Grant{{
				Type: device.GPU, ID: id(i), Minor: int32(i), Ratio: 100, Amount: device.Vector{device.Cores: 100},
			}}}
			if free>>i&1 == 0 && !yield(h) {
				return
			}
		}
	})
	request := &device.Request{Parts: []device.Part{{
		Type: device.GPU, Count: int64(k), Need: device.Need{Whole: true},
	}}}
	var choice device.Choice
	var reason device.Reason
	took = timed(func() { choice, reason = account.Choose(request, nil) })
	if !reason.OK() || bits.OnesCount64(choice.Keys.Mask) != k {
		return 0, took, fmt.Errorf("%d of %b: %+v", k, free, reason)
	}
	return choice.Keys.Mask, took, nil
}

// allocate is the answer of go-gpuallocator.
func allocate(free uint64, k int) (chosen uint64, took time.Duration) {
	devices := make([]*gpuallocator.Device, gpus)
	for i := range devices {
		devices[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
	}
	var available []*gpuallocator.Device
	for i, d := range devices {
		if free>>i&1 == 1 {
			available = append(available, d)
		}
		for j, other := range devices {
			if i == j {
				continue
			}
			lanes, level := link(i, j)
			d.Links[j] = append(d.Links[j], linkTo(other, level/10))
			if lanes > 0 {
				d.Links[j] = append(d.Links[j], linkTo(other, oneBoard+lanes))
			}
		}
	}
	var set []*gpuallocator.Device
	took = timed(func() { set = gpuallocator.NewBestEffortPolicy().Allocate(available, nil, k) })
	for _, d := range set {
		chosen |= 1 << d.Index
	}
	return chosen, took
}

// oneBoard is the closest type of link without lanes.
const oneBoard = 6

// linkTo is a link of one of the allocator's types, whose names cannot be imported: from 1 on closeness, from a CPU
// between to one board, and then lanes, from 1.
func linkTo(gpu *gpuallocator.Device, kind int64) gpuallocator.P2PLink {
	l := gpuallocator.P2PLink{GPU: gpu}
	set(&l.Type, kind)
	return l
}

func set[T ~uint](at *T, n int64) { *at = T(n) }
