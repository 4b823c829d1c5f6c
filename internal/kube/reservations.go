package kube

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Reservations is the account of Reservations and of the pods that use them. To the scheduler each is a reserve pod:
// one to schedule while it has no node, then one that holds what its users leave. Handlers of pods that are added to
// WithReservePods get them among the pods of the API server. All methods may be called from any goroutine.
type Reservations struct {
	// Profile is the scheduler of Reservations that name none. It is set before the first object.
	Profile string
	// KeepEnded is how long Reservations that have ended are kept; 0 for ever. It is set before Run of the writer.
	KeepEnded time.Duration
	// Preempts is whether pods of lower priority are evicted for Reservations. It is set before the first object.
	Preempts bool
	// ClusterMode is whether the room of pods of any owner is taken over that are labelled so. It is set before the
	// first object.
	ClusterMode bool
	// Inform sends an Event about a Reservation. nil sends none. It is set before Run of the writer.
	Inform func(r *v1alpha1.Reservation, reason event.Reason, message string)
	// Order makes the changes that follow from writes of this process rather than from events of the API server: an
	// object was written, or a Reservation ends before its status says so. nil makes them at once. It is set before the
	// first object.
	Order func(change OwnChange, o metav1.Object, apply func())

	client rest.Interface
	now    func() time.Time

	// emit is held while handlers get an event, so that all get the events of a reserve pod in one order. Handlers may
	// call every method that only reads.
	emit     sync.Mutex
	handlers []cache.ResourceEventHandler // guarded by emit

	mu      sync.RWMutex // guards what follows; nothing of another package is called while it is held
	account *reservation.Account
	objects map[types.UID]*v1alpha1.Reservation
	shown   map[types.UID]*corev1.Pod // reserve pods as handlers know them
	ended   map[types.UID]bool        // Reservations that have ended, which their status may not say yet
	users   map[types.UID]*corev1.Pod // pods that use a Reservation: bound ones, and those that were reserved for
	// refused is why Reservations without node were refused last.
	refused map[types.UID]string
	// nominated are the nodes on which pods were evicted for Reservations without node.
	nominated map[types.UID]string

	// occupants are the running pods on whose room a Reservation was reserved that is not on its node yet.
	occupants map[types.UID][]*corev1.Pod

	// nodes have what nodes can allocate and their pods, by name of the node.
	nodes map[string]*nodeRoom

	// reserving are the pods of mode Reservation, which are the reserve pods of what they keep. The API server delivers
	// their events.
	reserving map[types.UID]*corev1.Pod

	changed func(types.UID) // nil before OnChange
	leading time.Time       // when this process began to write; zero before, and where no other process ever wrote
}

// NewReservations returns an account without Reservations. client writes their status.
func NewReservations(client rest.Interface, now func() time.Time) *Reservations {
	return &Reservations{
		client: client, now: now, account: reservation.NewAccount(), objects: map[types.UID]*v1alpha1.Reservation{},
		shown: map[types.UID]*corev1.Pod{}, ended: map[types.UID]bool{}, users: map[types.UID]*corev1.Pod{},
		refused: map[types.UID]string{}, nominated: map[types.UID]string{},
		occupants: map[types.UID][]*corev1.Pod{}, reserving: map[types.UID]*corev1.Pod{},
		nodes: map[string]*nodeRoom{},
	}
}

// OnChange sets the function that is called with each Reservation whose status may have to be written. It must not
// block.
func (s *Reservations) OnChange(f func(types.UID)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = f
}

// OwnChange is a change that no event of the API server brings: this process makes it by itself.
type OwnChange string

// Changes of this process.
const (
	Written   OwnChange = "written"   // the object was written
	Ended     OwnChange = "ended"     // the room of a Reservation is taken back
	Expire    OwnChange = "expire"    // gangs that have waited for too long end
	Deadlocks OwnChange = "deadlocks" // the next cycle looks for gangs that keep each other from starting
)

// Apply makes a change. Others than of Reservations and of pods of mode Reservation do nothing.
func (s *Reservations) Apply(change OwnChange, o metav1.Object) {
	apply := func() {}
	switch o := o.(type) {
	case *corev1.Pod:
		apply = func() { s.putReserving(o) }
	case *v1alpha1.Reservation:
		apply = func() {
			s.change(o.UID, func() {
				switch known := s.objects[o.UID]; {
				case known == nil: // it was deleted meanwhile
				case change == Ended:
					s.ended[o.UID] = true
					s.account.Put(s.spec(known))
				default:
					s.record(o)
				}
			})
		}
	}
	if s.Order != nil {
		s.Order(change, o, apply)
	} else {
		apply()
	}
}

// Put records a Reservation. One that cannot be read keeps no room.
func (s *Reservations) Put(r *v1alpha1.Reservation) {
	s.change(r.UID, func() { s.record(r) })
}

// record records a version of a Reservation, unless it is older than what this process has written. s.mu is held.
func (s *Reservations) record(r *v1alpha1.Reservation) {
	if was := s.objects[r.UID]; was != nil {
		order, err := resourceversion.CompareResourceVersion(r.ResourceVersion, was.ResourceVersion)
		if err == nil && order < 0 {
			return
		}
	}
	s.objects[r.UID] = r
	if r.Status.NodeName != "" {
		delete(s.occupants, r.UID)
	}
	if r.Status.Phase.IsFinal() || len(r.Unread) > 0 {
		s.ended[r.UID] = true
	}
	s.account.Put(s.spec(r))
}

// Remove forgets a Reservation.
func (s *Reservations) Remove(r *v1alpha1.Reservation) {
	s.change(r.UID, func() {
		delete(s.objects, r.UID)
		delete(s.ended, r.UID)
		delete(s.refused, r.UID)
		delete(s.nominated, r.UID)
		delete(s.occupants, r.UID)
		s.account.Remove(string(r.UID))
	})
}

// PutPod records what a pod of the API server uses. A pod that is not bound uses what was reserved for it.
func (s *Reservations) PutPod(p *corev1.Pod) {
	uid := types.UID("")
	if p.Spec.NodeName != "" && !convert.Ended(p) {
		uid = types.UID(convert.UsedReservation(p))
	}
	if convert.IsReservePod(p) {
		return
	}
	s.putOnNode(p)
	s.putReserving(p)
	switch {
	case uid == "" && p.Spec.NodeName == "":
	case uid == "":
		s.Release(p)
	default:
		s.change(uid, func() {
			s.users[p.UID] = p
			s.account.Record(string(p.UID), string(uid), convert.PodAmounts(p))
		})
	}
	s.setPending(p, p.Spec.NodeName == "")
}

// RemovePod forgets a pod that was deleted.
func (s *Reservations) RemovePod(p *corev1.Pod) {
	s.removeFromNode(p)
	s.removeReserving(p)
	s.Release(p)
	s.setPending(p, false)
}

// Release ends what a pod uses.
func (s *Reservations) Release(p *corev1.Pod) {
	s.mu.RLock()
	uid := types.UID(s.account.UsedBy(string(p.UID)))
	s.mu.RUnlock()
	if uid == "" || convert.IsReservePod(p) {
		return
	}
	s.change(uid, func() {
		delete(s.users, p.UID)
		s.account.Release(string(p.UID))
	})
}

// Use lets a pod that is reserved use a Reservation, until Release; it returns reservation.ErrUsed where the pod may
// not.
func (s *Reservations) Use(p *corev1.Pod, uid string) (err error) {
	s.change(types.UID(uid), func() {
		if err = s.account.Use(string(p.UID), uid, convert.PodAmounts(p)); err == nil {
			waiting := *p // for its Binding, which may fail
			waiting.Spec.NodeName = ""
			s.users[p.UID] = &waiting
		}
	})
	return err
}

// Record returns the annotation that says which Reservation a pod uses, nil for none.
func (s *Reservations) Record(p *corev1.Pod) map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	used := annotation.ReservationAllocated{
		Name: s.account.UsedName(string(p.UID)), UID: types.UID(s.account.UsedBy(string(p.UID))),
	}
	if used.Name == "" {
		return nil
	}
	return map[string]string{annotation.ReservationAllocatedKey: annotation.Encode(used)}
}

// Returns reports whether what a pod leaves belongs to a Reservation again.
func (s *Reservations) Returns(p *corev1.Pod) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	spec := s.account.Find(s.account.UsedBy(string(p.UID)))
	return spec != nil && spec.Node != "" && (!spec.Once || spec.Waiting)
}

// IsEmpty reports whether no Reservation has room.
func (s *Reservations) IsEmpty() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.account.IsEmpty()
}

// Matching returns the Reservations that a pod may use, by node, in the order in which they are tried.
func (s *Reservations) Matching(p *reservation.Pod) map[string][]*reservation.Spec {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.account.Matching(p)
}

// Left is what a Reservation keeps beside its users.
func (s *Reservations) Left(uid string) amount.List {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.account.Left(uid)
}

// On returns the Reservations on a node that have not ended, by name.
func (s *Reservations) On(node string) (all []*v1alpha1.Reservation) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, spec := range s.account.On(node) {
		if uid := types.UID(spec.UID); !s.isSpent(uid) {
			all = append(all, s.objects[uid])
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.Reservation) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// isSpent reports whether the one pod of a Reservation has used it. s.mu is held.
func (s *Reservations) isSpent(uid types.UID) bool {
	return s.account.Announcement(string(uid)) == reservation.Spent
}

// UIDs returns those of all Reservations.
func (s *Reservations) UIDs() []types.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Find returns a Reservation and its reserve pod, nil where there is none.
func (s *Reservations) Find(uid types.UID) (*v1alpha1.Reservation, *corev1.Pod) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[uid], s.shown[uid]
}

// Usage returns what a known Reservation keeps, what its users have of that, and these by namespace and name: pods that
// are bound, and those that were reserved for.
func (s *Reservations) Usage(uid types.UID) (*reservation.Spec, amount.List, []*corev1.Pod) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var pods []*corev1.Pod
	for _, pod := range s.account.Users(string(uid)) {
		if p := s.users[types.UID(pod)]; p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s.account.Find(string(uid)), s.account.Allocated(string(uid)), pods
}

// Refuse records why a Reservation without node was refused, and the node on which pods were evicted for it, "" for
// none.
func (s *Reservations) Refuse(uid types.UID, message, nominated string) {
	s.change(uid, func() { s.refused[uid], s.nominated[uid] = message, nominated })
}

// change changes the account, and delivers what becomes of the reserve pod of a Reservation.
func (s *Reservations) change(uid types.UID, f func()) {
	s.emit.Lock()
	defer s.emit.Unlock()
	s.mu.Lock()
	f()
	was, now := s.shown[uid], s.reservePod(s.account, uid)
	if now != nil {
		s.shown[uid] = now
	} else {
		delete(s.shown, uid)
	}
	changed := s.changed
	s.mu.Unlock()
	isReal := func(p *corev1.Pod) bool { return p != nil && !convert.IsReservePod(p) }
	for _, h := range s.handlers {
		switch {
		case isReal(was) || isReal(now):
		case was == nil && now != nil:
			h.OnAdd(now, false)
		case was != nil && now == nil:
			h.OnDelete(was)
		case was != nil && !sameReservePod(was, now):
			h.OnUpdate(was, now)
		}
	}
	if changed != nil && uid != "" {
		changed(uid)
	}
}

// sameReservePod compares all but the version of the Reservation that they stem from.
func sameReservePod(a, b *corev1.Pod) bool {
	return reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Annotations, b.Annotations) &&
		reflect.DeepEqual(a.Labels, b.Labels)
}

// reservePod returns the reserve pod of a Reservation as an account has it, nil for one that asks for nothing and holds
// nothing.
func (s *Reservations) reservePod(a *reservation.Account, uid types.UID) *corev1.Pod {
	r := s.objects[uid]
	if r == nil || s.ended[uid] {
		return nil
	}
	if pod := s.reserving[uid]; pod != nil && len(a.Left(string(uid))) > 0 {
		return pod
	} else if pod != nil {
		return nil
	}
	if r.Status.NodeName == "" {
		pod := convert.PendingReservePod(r, s.Profile, s.Preempts)
		pod.Status.NominatedNodeName = s.nominated[uid]
		return pod
	}
	left := a.Left(string(uid))
	if len(left) == 0 {
		return nil
	}
	return convert.HoldingReservePod(r, r.Status.NodeName, s.Profile, left)
}

// WithReservePods returns an informer of pods whose handlers get reserve pods too, and whose store finds them by key.
func (s *Reservations) WithReservePods(pods cache.SharedIndexInformer) cache.SharedIndexInformer {
	return &reservedInformer{pods, s}
}

// Deliver adds a handler of reserve pods.
func (s *Reservations) Deliver(h cache.ResourceEventHandler) {
	s.emit.Lock()
	defer s.emit.Unlock()
	s.handlers = append(s.handlers, h)
	for _, pod := range s.ReservePods() {
		h.OnAdd(pod, true)
	}
}

// ReservePods returns the reserve pods that handlers know, in no order. A pod of the API server that reserves room
// itself is not among them.
func (s *Reservations) ReservePods() []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pods := make([]*corev1.Pod, 0, len(s.shown))
	for _, pod := range s.shown {
		if convert.IsReservePod(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

type reservedInformer struct {
	cache.SharedIndexInformer
	reservations *Reservations
}

func (i *reservedInformer) AddEventHandler(h cache.ResourceEventHandler) (
	cache.ResourceEventHandlerRegistration, error,
) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (i *reservedInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler,
	o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	i.reservations.Deliver(h)
	return i.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
}

func (i *reservedInformer) GetIndexer() cache.Indexer {
	return &reservedIndexer{i.SharedIndexInformer.GetIndexer(), i.reservations}
}

type reservedIndexer struct {
	cache.Indexer
	reservations *Reservations
}

func (i *reservedIndexer) GetByKey(key string) (any, bool, error) {
	object, found, err := i.Indexer.GetByKey(key)
	if found || err != nil {
		return object, found, err
	}
	if _, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
		if _, pod := i.reservations.Find(types.UID(name)); pod != nil && pod.Namespace+"/"+pod.Name == key {
			return pod, true, nil
		}
	}
	return nil, false, nil
}

// ReservationTrial is the Reservations as they would be with other users. It changes none of them. Not safe for
// concurrent use, apart from readers.
type ReservationTrial struct {
	reservations *Reservations
	account      *reservation.Account
}

// Try returns the Reservations as they are.
func (s *Reservations) Try() *ReservationTrial {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &ReservationTrial{s, s.account.Clone()}
}

// Clone returns a copy.
func (t *ReservationTrial) Clone() *ReservationTrial {
	return &ReservationTrial{t.reservations, t.account.Clone()}
}

// Matching is that of Reservations.
func (t *ReservationTrial) Matching(p *reservation.Pod) map[string][]*reservation.Spec {
	return t.account.Matching(p)
}

// Left is that of Reservations.
func (t *ReservationTrial) Left(uid string) amount.List { return t.account.Left(uid) }

// Use is that of Reservations.
func (t *ReservationTrial) Use(p *corev1.Pod, uid string) error {
	return t.account.Use(string(p.UID), uid, convert.PodAmounts(p))
}

// Release ends what a pod uses, and reports whether it used anything.
func (t *ReservationTrial) Release(p *corev1.Pod) bool { return t.account.Release(string(p.UID)) != "" }

// ReservePod returns the reserve pod of a Reservation, nil for one that holds nothing.
func (t *ReservationTrial) ReservePod(uid types.UID) *corev1.Pod {
	t.reservations.mu.RLock()
	defer t.reservations.mu.RUnlock()
	return t.reservations.reservePod(t.account, uid)
}
