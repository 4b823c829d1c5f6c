package annotation

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
)

// ReservationIgnored is a label of a Pod: "true" for one that uses no Reservation, and no room that one keeps.
const ReservationIgnored = "scheduling.koordinator.sh/reservation-ignored"

// OperatingMode is a label of a Pod, with its values. A pod of mode Reservation keeps its room for the pod that
// ReservationOwners names: it runs until that pod comes, and is deleted then. Default: Runnable.
const (
	OperatingMode        = "scheduling.koordinator.sh/operating-mode"
	OperatingRunnable    = "Runnable"
	OperatingReservation = "Reservation"
)

// Annotations of a pod of mode Reservation.
const (
	// ReservationOwnersKey holds the pods that may use the room, as spec.owners of a Reservation: one of them does.
	ReservationOwnersKey = "scheduling.koordinator.sh/reservation-owners"
	// ReservationCurrentOwnerKey holds an ObjectReference to the pod that uses the room, written by the scheduler
	// before it deletes the pod of mode Reservation.
	ReservationCurrentOwnerKey = "scheduling.koordinator.sh/reservation-current-owner"
)

// ReservationOwners are the pods that may use the room of a pod.
type ReservationOwners []v1alpha1.ReservationOwner

// ParseReservationOwners reads ReservationOwners.
func ParseReservationOwners(text string) (ReservationOwners, []Warning, error) {
	return read(text, func(r *reader, o *ReservationOwners) {
		if len(*o) == 0 {
			r.refuse("", Error{Text: "must have at least one entry"})
		}
	})
}

// CurrentOwner refers to the pod that uses the room of a pod.
type CurrentOwner corev1.ObjectReference

// ParseCurrentOwner reads a CurrentOwner.
func ParseCurrentOwner(text string) (CurrentOwner, []Warning, error) {
	return read(text, func(r *reader, o *CurrentOwner) {
		if o.UID == "" {
			r.refuse("uid", Error{Text: "must not be empty"})
		}
	})
}

// Annotations of a Pod that say which Reservations it may use, written by users.
const (
	// ReservationAffinityKey holds a ReservationAffinity.
	ReservationAffinityKey = "scheduling.koordinator.sh/reservation-affinity"
	// ExactMatchReservationKey holds an ExactMatchReservation.
	ExactMatchReservationKey = "scheduling.koordinator.sh/exact-match-reservation"
	// ReservePodKey marks what the scheduler makes of a Reservation to schedule it. It is refused on pods.
	ReservePodKey = "scheduling.koordinator.sh/reserve-pod"
)

// Keys of running Pods on whose room a Reservation with preAllocation may be placed.
const (
	// PreAllocatablePriority is an annotation, a whole number: the room of the pod with the highest one is taken first.
	// Default: 0.
	PreAllocatablePriority = "pod.koordinator.sh/pre-allocatable-priority"
	// IsPreAllocatable is a label: "true" for a pod whose room a Reservation of mode Cluster may take over, whatever
	// its owners. Default: false.
	IsPreAllocatable = "pod.koordinator.sh/is-pre-allocatable"
)

// Keys of a Reservation.
const (
	// PreAllocationRequired is a label: "true" for a Reservation with preAllocation that is placed on the room of
	// running pods only, even where enough is free. Default: false.
	PreAllocationRequired = "scheduling.koordinator.sh/pre-allocation-required"
	// ReservationOrder is a label: of several Reservations on a node that a pod may use, the lowest number other than 0
	// is used first. Default: 0, which has no order.
	ReservationOrder = "scheduling.koordinator.sh/reservation-order"
	// ReservationRestrictedOptionsKey is an annotation that holds ReservationRestrictedOptions.
	ReservationRestrictedOptionsKey = "scheduling.koordinator.sh/reservation-restricted-options"
)

// ReservationAffinity requires a pod to use one of some Reservations. A pod without it uses any whose owner it is.
type ReservationAffinity struct {
	// Name is that of the Reservation. The selectors are not read beside it.
	Name string `json:"name,omitempty"`
	// Required are terms on labels, or on the field metadata.name, of the Reservation; one must hold.
	Required *ReservationSelector `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`
	// ReservationSelector are labels that the Reservation must have.
	ReservationSelector map[string]string `json:"reservationSelector,omitempty"`
	// Tolerations let the pod use Reservations with taints. Alone they require no Reservation.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ReservationSelector are terms; one must hold.
type ReservationSelector struct {
	ReservationSelectorTerms []corev1.NodeSelectorTerm `json:"reservationSelectorTerms"`
}

// IsRequired reports whether the pod must use a Reservation.
func (a *ReservationAffinity) IsRequired() bool {
	return a.Name != "" || a.Required != nil || len(a.ReservationSelector) > 0
}

// ParseReservationAffinity reads a ReservationAffinity.
func ParseReservationAffinity(text string) (ReservationAffinity, []Warning, error) {
	return read(text, func(r *reader, a *ReservationAffinity) {
		if a.Required != nil {
			const field = "requiredDuringSchedulingIgnoredDuringExecution"
			if len(a.Required.ReservationSelectorTerms) == 0 {
				r.refuse(field, Error{Text: "must have at least one of reservationSelectorTerms"})
			}
			for _, term := range a.Required.ReservationSelectorTerms {
				r.selectorTerm(field, term)
			}
		}
		for _, t := range a.Tolerations {
			operators := []corev1.TolerationOperator{"", corev1.TolerationOpExists, corev1.TolerationOpEqual}
			if !slices.Contains(operators, t.Operator) {
				r.refuse("tolerations", Error{
					Value: string(t.Operator), Text: Unsupported(string(t.Operator), "Exists", "Equal"),
				})
			}
		}
	})
}

func (r *reader) selectorTerm(field string, term corev1.NodeSelectorTerm) {
	for _, e := range term.MatchFields {
		if e.Key != "metadata.name" {
			r.refuse(field, Error{Value: e.Key, Text: Unsupported(e.Key, "metadata.name")})
		}
	}
	for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
		switch e.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(e.Values) == 0 {
				r.refuse(field, Error{Text: fmt.Sprintf("%s %s must have values", e.Key, e.Operator)})
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				r.refuse(field, Error{Text: fmt.Sprintf("%s %s must not have values", e.Key, e.Operator)})
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(e.Values) != 1 {
				r.refuse(field, Error{Text: fmt.Sprintf("%s %s must have one value", e.Key, e.Operator)})
			} else if _, err := strconv.ParseInt(e.Values[0], 10, 64); err != nil {
				r.refuse(field, Error{Value: e.Values[0], Text: fmt.Sprintf("%s %s: must be a whole number: %.64q",
					e.Key, e.Operator, e.Values[0])})
			}
		default:
			r.refuse(field, Error{
				Value: string(e.Operator),
				Text:  Unsupported(string(e.Operator), "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
			})
		}
	}
}

// ExactMatchReservation names resources of which a Reservation must have exactly what the pod requests.
type ExactMatchReservation struct {
	ResourceNames []corev1.ResourceName `json:"resourceNames,omitempty"`
}

// ParseExactMatchReservation reads an ExactMatchReservation.
func ParseExactMatchReservation(text string) (ExactMatchReservation, []Warning, error) {
	return read[ExactMatchReservation](text, nil)
}

// ReservationRestrictedOptions are the resources that the policy Restricted counts for. Default: all that are reserved.
type ReservationRestrictedOptions struct {
	Resources []corev1.ResourceName `json:"resources,omitempty"`
}

// ParseReservationRestrictedOptions reads ReservationRestrictedOptions.
func ParseReservationRestrictedOptions(text string) (ReservationRestrictedOptions, []Warning, error) {
	return read[ReservationRestrictedOptions](text, nil)
}

// ReservationAllocated names the Reservation that a pod uses. A new one of the same name has another UID.
type ReservationAllocated struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// ParseReservationAllocated reads a ReservationAllocated.
func ParseReservationAllocated(text string) (ReservationAllocated, []Warning, error) {
	return read(text, func(r *reader, a *ReservationAllocated) {
		if a.UID == "" {
			r.refuse("uid", Error{Text: "must not be empty"})
		}
	})
}

// ParsePreAllocatablePriority reads a PreAllocatablePriority.
func ParsePreAllocatablePriority(text string) (int64, []Warning, error) {
	return ParseReservationOrder(text)
}

// ParseReservationOrder reads a ReservationOrder.
func ParseReservationOrder(text string) (int64, []Warning, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, nil, invalid(text, "must be a whole number that fits int64")
	}
	return n, nil, nil
}
