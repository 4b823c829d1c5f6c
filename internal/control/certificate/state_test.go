package certificate

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestEveryClientAcceptsEveryServer: at any moment of any order of requests, restarts and faults, whoever trusts a
// published bundle accepts what either replica serves; and once faults end, both serve the same pair, which is not due.
func TestEveryClientAcceptsEveryServer(t *testing.T) {
	t.Parallel()
	const apart = 25 * time.Minute // clocks from the right one
	rapid.Check(t, func(t *rapid.T) {
		s, now := newServer(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		var replicas [2]*replica
		var mayWrite [2]bool
		start := func(i int) {
			mayWrite[i] = true
			ahead := time.Duration(rapid.IntRange(-1, 1).Draw(t, "ahead")) * apart
			replicas[i] = s.start(func() time.Time { return now.Add(ahead) }, func() bool { return mayWrite[i] })
		}
		start(0)
		start(1)
		defer func() { replicas[0].stop(); replicas[1].stop() }()
		which := func(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "replica") }
		check := func(t *rapid.T) {
			for i, r := range replicas {
				if refusal := s.refusal(r.keeper.served.Load(), now, now.Add(apart), now.Add(-apart)); refusal != "" {
					t.Fatalf("replica %d is refused by %s", i, refusal)
				}
			}
		}
		requests := func(t *rapid.T) {
			r := replicas[which(t)]
			for range rapid.SampledFrom([]int{1, 1, 2, 3, 5, 40}).Draw(t, "requests") {
				r.step()
				check(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"requests": requests, "requests again": requests, "more requests": requests, "many requests": requests,
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "hours")) * 12 * time.Hour)
			},
			"rotate":  func(*rapid.T) { s.rotate(rotateNow) },
			"delete":  func(*rapid.T) { delete(s.objects, "secrets") },
			"upgrade": func(*rapid.T) { s.upgrade() },
			"garbage": func(t *rapid.T) {
				s.edit(func(secret *corev1.Secret) {
					keys := slices.Sorted(maps.Keys(secret.Data))
					secret.Data[rapid.SampledFrom(keys).Draw(t, "key")] = []byte("garbage")
				})
			},
			"restart": func(t *rapid.T) {
				i := which(t)
				replicas[i].stop()
				start(i)
			},
			"rights": func(t *rapid.T) {
				i := which(t)
				mayWrite[i] = !mayWrite[i]
			},
			"": check,
		})
		mayWrite = [2]bool{true, true}
		for range 100 {
			for _, r := range replicas {
				r.step()
			}
			check(t)
		}
		secret := s.state(now)
		authority := secret.signer
		if authority == nil || !now.Add(-apart).Before(due(authority)) || len(secret.next) > 0 || secret.rotate != "" {
			t.Fatalf("at %s the Secret has %v, next %v, rotate %q", now, authority, secret.next, secret.rotate)
		}
		for where, bundle := range s.bundles() {
			if !has(parse(*bundle), authority) {
				t.Errorf("%s lacks the authority", where)
			}
		}
		for i, r := range replicas {
			own := r.keeper.served.Load()
			if own == nil || !bytes.Equal(encode(own.Leaf), secret.active["manager.crt"]) {
				t.Errorf("replica %d does not serve what the Secret says: %v", i, r.failed)
			}
		}
	})
}
