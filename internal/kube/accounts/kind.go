package accounts

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
)

// Table is the kinds of objects that accounts follow.
type Table []Kind

// Of returns a kind of the table by its name.
func (t Table) Of(name string) Kind {
	return t[slices.IndexFunc(t, func(k Kind) bool { return k.Name == name })]
}

// Put puts a state of an object into the accounts that follow its kind. It returns false for an object of a kind that
// is not in the table.
func (t Table) Put(o any) bool {
	i := t.index(o)
	if i >= 0 {
		t[i].accounts.OnAdd(o, false)
	}
	return i >= 0
}

// Remove is Put for an object that is gone. o is its last state.
func (t Table) Remove(o any) bool {
	i := t.index(o)
	if i >= 0 {
		t[i].accounts.OnDelete(o)
	}
	return i >= 0
}

func (t Table) index(o any) int { return slices.IndexFunc(t, func(k Kind) bool { return k.has(o) }) }

// Kind is a kind of objects with the accounts that follow it.
type Kind struct {
	Name    string   // of the Go type
	Sources []Source // empty for a kind of Kubernetes

	has      func(o any) bool           // whether o is of the kind
	accounts cache.ResourceEventHandler // passes each event to all accounts, in the order of the table
	// apart makes the informer that the accounts follow: one without updates that change nothing for them, or one with
	// namesakes kept apart. behind makes the informer for the handlers behind the accounts.
	apart, behind func(cache.SharedIndexInformer) cache.SharedIndexInformer
}

// Source is an API resource with objects of a kind.
type Source struct {
	At       []schema.GroupVersionResource // the first that the API server has counts
	Informer func(rest.Interface) cache.SharedIndexInformer
	Read     func(text []byte) (any, error) // reads the JSON of an object
}

// First returns the informer with the accounts in front: the handler that is added to it first gets each event after
// the accounts have had it.
func (k Kind) First(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return k.behind(kube.First(k.accounts, k.apart(i)))
}

// Follow adds the accounts to the informer as a handler of its own.
func (k Kind) Follow(i cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
	return k.apart(i).AddEventHandler(k.accounts)
}

// kindOf returns a kind with its accounts, which do not get an update between two states that are the same; nil where
// all updates count.
func kindOf[T any](name string, sources []Source, same func(was, now T) bool, accounts ...account[T]) Kind {
	unchanged := func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return i }
	k := Kind{
		Name: name, Sources: sources, apart: unchanged, behind: unchanged,
		has: func(o any) bool { _, ok := o.(T); return ok },
	}
	if same != nil {
		k.apart = func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return kube.Distinct(same, i) }
	}
	accounts = slices.DeleteFunc(accounts, func(a account[T]) bool { return a.follows == nil })
	each := func(f func(account[T])) {
		for _, a := range accounts {
			if a.follows() {
				f(a)
			}
		}
	}
	k.accounts = kube.Handler(
		func(o T) { each(func(a account[T]) { a.put(o) }) }, func(o T) { each(func(a account[T]) { a.remove(o) }) })
	return k
}

// account is what an account does with the objects of a kind. follows is nil for a missing account.
type account[T any] struct {
	follows     func() bool
	put, remove func(T)
}

// to returns the account that store is; store may be nil.
func to[S, T any](store *S, put, remove func(T)) account[T] {
	if store == nil {
		return account[T]{}
	}
	follows := func() bool { return true }
	if s, ok := any(store).(interface{ IsConfigured() bool }); ok {
		follows = s.IsConfigured
	}
	return account[T]{follows, put, remove}
}

// byName is to for an account that removes objects by their names.
func byName[S any, T metav1.Object](store *S, put func(T), remove func(name string)) account[T] {
	return to(store, put, func(o T) { remove(o.GetName()) })
}

// from returns the source of a kind.
func from[T any](informer func(rest.Interface) cache.SharedIndexInformer, read func([]byte) (T, error),
	at ...schema.GroupVersionResource,
) []Source {
	return []Source{{at, informer, func(text []byte) (any, error) { return read(text) }}}
}
