package app_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAChangeOfTheKubeletsRecordIsSeenAtOnce: the next resync is an hour away.
func TestAChangeOfTheKubeletsRecordIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "arm64-1s@static,reserved=0")
	w.options.Resync, w.options.WatchKubelet = time.Hour, true
	w.label(annotation.TopologyMode, "Follow")
	p := pod("a", "", "2", "")
	if _, err := w.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.state(`{"policyName":"static","defaultCpuSet":"0-63","entries":{},"checksum":1}`)
	a, err := app.New(w.options)
	testkit.Check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	await := func(says string, try func()) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) {
				try()
				if _, err := w.objects.Tracker().Get(v1alpha2.Resource(), "", nodeName); err != nil {
					return false, nil //nolint:nilerr // not published yet
				}
				return strings.Contains(w.published(annotation.NUMAStateKey)+w.published(annotation.TopologyMode),
						says),
					nil
			})
		if err != nil {
			t.Fatalf("wait for %s: %v", says, err)
		}
	}
	await("Follow", func() {})
	// The kubelet puts a new file in the place of the old one. No event shows when the agent began to watch.
	await(`"cpus":"4-5"`, func() {
		file := w.root.Path("var/lib/kubelet/cpu_manager_state")
		text := fmt.Sprintf(
			`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"%s":{"main":"4-5"}},"checksum":1}`, p.UID)
		testkit.Check(t, os.WriteFile(file+".new", []byte(text), 0o600))
		testkit.Check(t, os.Rename(file+".new", file))
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// A StatefulSet's pod keeps its name: whoever did not watch while it was deleted and made anew lists another pod in its
// place.
func TestAPodRecreatedDuringAWatchGapLeavesNoGhost(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.options.Resync = time.Hour // nothing but the list itself repairs
		gap := make(chan *watch.RaceFreeFakeWatcher, 1)
		w.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			f := watch.NewRaceFreeFake() // sends no event: the next list shows what happened
			gap <- f
			return true, f, nil
		})
		ls := pod("ls", "LS", "1500m", "")
		w.create(ls)
		w.run(func(a *app.Agent) {
			shared, err := w.start(a, ls)
			testkit.Check(t, err)
			for i := range 100 {
				p := pod("db-0", "LSR", "4", fmt.Sprintf("%d-%d", i%60, i%60+3))
				p.UID = types.UID(fmt.Sprint("db-0-", i))
				if err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default",
					"db-0"); err != nil && i > 0 {
					t.Fatal(err)
				}
				w.create(p)
				gone := apierrors.NewResourceExpired("the watch is too old").Status()
				(<-gap).Error(&gone)
				later(5 * time.Minute)
				want := a.Machine().FormatList(a.Machine().Online().Minus(cpuset.MustParse(fmt.Sprintf("%d-%d", i%60,
					i%60+3))))
				if got := w.cpuset(shared); got != want {
					t.Fatalf("after %d pods of one name the shared pod has %s, want %s", i+1, got, want)
				}
				if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"cpuset":"`+want+`"`) {
					t.Fatalf("after %d pods of one name the published pools are %s, want %s", i+1, got, want)
				}
			}
		})
	})
}
