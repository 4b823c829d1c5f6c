package app_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
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
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	await := func(says string, try func()) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			try()
			if _, err := w.objects.Tracker().Get(v1alpha2.Resource(), "", nodeName); err != nil {
				return false, nil //nolint:nilerr // not published yet
			}
			return strings.Contains(w.published(annotation.NUMAStateKey)+w.published(annotation.TopologyMode), says), nil
		})
		if err != nil {
			t.Fatalf("wait for %s: %v", says, err)
		}
	}
	await("Follow", func() {})
	// The kubelet puts a new file in the place of the old one. When the agent began to watch nobody tells.
	await(`"cpus":"4-5"`, func() {
		file := w.root.Path("var/lib/kubelet/cpu_manager_state")
		text := fmt.Sprintf(`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"%s":{"main":"4-5"}},"checksum":1}`, p.UID)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}
