package deviceshare

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The templates are those of the ConfigMap; what cannot be read of it leaves the last ones.
func TestTemplatesFollowTheirConfigMap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, all := fake.NewClientset(), &templates{}
		f := informers.NewSharedInformerFactory(client, 0)
		c := v1alpha1.GPUTemplatesConfig{ConfigMapNamespace: "n", ConfigMapName: "m"}
		testkit.Check(t, all.follow(f, &c))
		other := v1alpha1.GPUTemplatesConfig{ConfigMapNamespace: "n", ConfigMapName: "o"}
		if err := all.follow(f, &c); err != nil {
			t.Error(err)
		}
		if err := all.follow(f, &other); err == nil || !strings.Contains(err.Error(), "another profile names n/m") {
			t.Errorf("two ConfigMaps: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		maps := client.CoreV1().ConfigMaps("n")
		object := func(text string) *corev1.ConfigMap {
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}, Data: map[string]string{"data.yaml": text},
			}
		}
		update := func(text string) error {
			_, err := maps.Update(ctx, object(text), metav1.UpdateOptions{})
			return err
		}
		for _, step := range []struct {
			do   func() error
			want string
		}{
			{func() error { return nil }, ""},
			{func() error {
				_, err := maps.Create(ctx, object("m: {b: {}, a: {}}"), metav1.CreateOptions{})
				return err
			}, "a b"},
			{func() error { return update("m: {c: {cpu: 1}}") }, "a b"},
			{func() error { return update("m: {c: {huawei.com/npu-core: 1}}") }, "c"},
			{func() error { return maps.Delete(ctx, "m", metav1.DeleteOptions{}) }, ""},
		} {
			synctest.Wait()
			testkit.Check(t, step.do())
			synctest.Wait()
			var names []string
			if list := all.Load(); list != nil {
				for _, x := range *list {
					names = append(names, x.Name)
				}
			}
			if got := strings.Join(names, " "); got != step.want {
				t.Errorf("templates %q, want %q", got, step.want)
			}
		}
		cancel()
		f.Shutdown()
	})
}
