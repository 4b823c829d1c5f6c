package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

func newReservation(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var format, color, address string
	var watch bool
	c := help.Command(texts, "reservation", &cobra.Command{
		ValidArgsFunction: completeArgument(flags, "reservation"),
		RunE: func(c *cobra.Command, args []string) error {
			_, name, err := named(args, "reservation")
			if err != nil {
				return err
			}
			p, err := newPaint(color, streams.Out, os.Getenv)
			if err != nil {
				return err
			}
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			err = repeat(c.Context(), watch, watchInterval, streams.Out, func(w io.Writer) error {
				return cl.showReservations(c.Context(), w, format, name, p, widthFor(format, streams.Out))
			})
			if err != nil || watch || name != "" || format != "table" && format != wide {
				return err
			}
			f, err := askForecast(c.Context(), flags, address)
			if err != nil {
				fmt.Fprintf(streams.ErrOut, "note: nodes held for pending pods are not shown: %v\n", err)
				return nil
			}
			_, err = io.WriteString(streams.Out, holdsText(f))
			return err
		},
	})
	outputFlag(c, &format, wide, nameFormat)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the answer again when something other than an age changes")
	c.Flags().StringVar(&color, "color", colorAuto, "auto, always or never")
	diagnosticsFlag(c, &address)
	return c
}

func (c cluster) showReservations(ctx context.Context, w io.Writer, format, name string, p paint, width int) error {
	a, err := c.loadReservations(ctx)
	if err != nil {
		return err
	}
	if name == "" {
		all := a.reservations()
		return printAnswer(w, format, newList("ReservationList", all),
			func() string { return drawReservations(all, format == wide, p, width) },
			namesOf("reservation", all, func(r *view.Reservation) string { return r.Name })...)
	}
	r, _, err := a.reservation(name)
	if err != nil {
		return err
	}
	answer := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		view.Reservation
	}{apiVersion, "Reservation", r}
	return printAnswer(w, format, answer, func() string { return drawReservation(&r, p, width) }, "reservation/"+name)
}

// reservations returns the Reservations, by name.
func (a *account) reservations() []view.Reservation {
	all := []view.Reservation{}
	for _, uid := range a.reserved.UIDs() {
		r, _ := a.reserved.Find(uid)
		all = append(all, describe.Reservation(r, a.reserved, a.store.View(r.Status.NodeName)))
	}
	slices.SortFunc(all, func(a, b view.Reservation) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// reservation returns the Reservation of a name, and its UID.
func (a *account) reservation(name string) (found view.Reservation, uid types.UID, err error) {
	for _, uid := range a.reserved.UIDs() {
		if r, _ := a.reserved.Find(uid); r.Name == name {
			return describe.Reservation(r, a.reserved, a.store.View(r.Status.NodeName)), uid, nil
		}
	}
	return found, "", unknownOf("reservation", name, a.reservations(),
		func(r view.Reservation) string { return r.Name })
}

// loadReservations is load for a user who asks about Reservations, and must be allowed to read them.
func (c cluster) loadReservations(ctx context.Context) (*account, error) {
	a, err := c.load(ctx, "", "")
	if err == nil {
		err = a.unreserved
	}
	return a, err
}

func reservationAge(r *view.Reservation) string {
	if r.CreateTime == nil {
		return "-"
	}
	return age(time.Since(*r.CreateTime))
}

// drawReservations draws a line for each Reservation, with kubectl's columns first.
func drawReservations(all []view.Reservation, more bool, p paint, width int) string {
	if len(all) == 0 {
		return "no Reservation exists\n"
	}
	c := columns{paint: p, width: width}
	head := []any{"NAME", "PHASE", "AGE", "NODE", "TTL", "EXPIRES", "LEFT", "CPUS", "DEVICES", "OWNERS", "USED BY"}
	if more {
		head = append(head, "POLICY", "ONCE")
	}
	c.add(append(head, "MESSAGE")...)
	for i := range all {
		r := &all[i]
		row := []any{
			r.Name, r.Phase, reservationAge(r), cmp.Or(r.Node, "-"), cmp.Or(r.TTL, "-"), cmp.Or(r.Expires, "-"),
			cmp.Or(amountsText(r.Left), "-"), cmp.Or(r.CPUSet, "-"), cmp.Or(view.DevicesText(r.Devices), "-"),
			cmp.Or(strings.Join(r.Owners, "; "), "-"), cmp.Or(strings.Join(r.Users, ","), "-"),
		}
		if more {
			row = append(row, r.Policy, r.Once)
		}
		c.add(append(row, r.Message)...)
	}
	return c.String()
}

// drawReservation draws one Reservation.
func drawReservation(r *view.Reservation, p paint, width int) string {
	text := fmt.Sprintf("reservation %s   %s %s", r.Name, r.Phase, reservationAge(r))
	if r.Node != "" {
		text += "   on " + r.Node
	}
	c := columns{paint: p, width: width, indent: "  "}
	c.add("owners", strings.Join(r.Owners, "; "))
	use := "several pods"
	if r.Once {
		use = "one pod"
	}
	if r.Unschedulable {
		use = "no further pods"
	}
	ends := "never expires"
	switch {
	case r.Expires != "":
		ends = "expires " + r.Expires
	case r.TTL != "" && r.TTL != "0s":
		ends = "expires after " + r.TTL
	}
	c.add("says", strings.Join([]string{"for " + use, r.Policy, ends}, " · "))
	for _, line := range [][2]string{
		{"reserved", amountsText(r.Allocatable)},
		{"left", amountsText(r.Left)},
		{"CPUs", r.CPUSet},
		{"devices", view.DevicesText(r.Devices)},
		{"used by", strings.Join(r.Users, ", ")},
		{"waits", r.Message},
	} {
		switch phase := v1alpha1.ReservationPhase(r.Phase); {
		case line[0] != "waits":
		case phase.IsFinal():
			line[0] = "ended"
		case phase == v1alpha1.ReservationAvailable:
			line[0] = "lacks"
		}
		if line[1] != "" {
			c.add(line[0], line[1])
		}
	}
	return text + "\n" + c.String()
}

// amountsText lists amounts by resource: "cpu 4, memory 8Gi".
func amountsText(amounts map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		parts = append(parts, name+" "+amounts[name])
	}
	return strings.Join(parts, ", ")
}

// explainedReservation is the explanation of a Reservation: that of a pod which asks for what it reserves.
type explainedReservation struct {
	view.Pod
	Reservation view.Reservation `json:"reservation"`
}

// reservation explains a Reservation as the pod as which it is scheduled. One that has ended holds nothing to explain.
func (e *explanation) reservation(ctx context.Context, name string) error {
	a, err := e.loadReservations(ctx)
	if err != nil {
		return err
	}
	answer := explainedReservation{}
	var uid types.UID
	if answer.Reservation, uid, err = a.reservation(name); err != nil {
		return err
	}
	_, pod := a.reserved.Find(uid)
	if pod != nil {
		if answer.Pod, err = e.explainPod(ctx, pod); err != nil {
			return err
		}
	}
	answer.Pod.Pod = "reservation/" + name
	return e.print(answer, answer.RootCause != nil, func() string {
		return drawReservation(&answer.Reservation, e.render.paint, e.render.width) +
			e.render.body(explained{Pod: answer.Pod})
	}, answer.Pod.Pod)
}
