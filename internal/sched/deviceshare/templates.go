package deviceshare

import (
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// templates are the templates of shared devices, from the one ConfigMap that all profiles name. The pointer is replaced
// with each version and is nil while the ConfigMap does not exist. Load is safe for concurrent use.
type templates struct {
	atomic.Pointer[[]device.Template]
	// namespace and name are those of the ConfigMap; empty before the first profile that names one.
	namespace, name string
}

// follow reads the ConfigMap for as long as informers run. A version that cannot be parsed is logged, and the last good
// one remains. It returns an error if another profile names another ConfigMap.
func (t *templates) follow(f informers.SharedInformerFactory, c *v1alpha1.GPUTemplatesConfig) error {
	if t.name != "" {
		if t.namespace != c.ConfigMapNamespace || t.name != c.ConfigMapName {
			return fmt.Errorf("gpuSharedResourceTemplatesConfig: ConfigMap %s/%s, another profile names %s/%s: "+
				"want one", c.ConfigMapNamespace, c.ConfigMapName, t.namespace, t.name)
		}
		return nil
	}
	t.namespace, t.name = c.ConfigMapNamespace, c.ConfigMapName
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, t.name).String()
	i := f.InformerFor(&corev1.ConfigMap{},
		func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
			return coreinformers.NewFilteredConfigMapInformer(client, t.namespace, 0, cache.Indexers{},
				func(o *metav1.ListOptions) { o.FieldSelector = only })
		})
	read := func(object any) {
		m, ok := object.(*corev1.ConfigMap)
		if !ok {
			return
		}
		list, err := convert.Templates(m.Data["data.yaml"])
		if err != nil {
			klog.Background().Error(err, "Templates of shared devices cannot be used", "configMap", klog.KObj(m))
			return
		}
		t.Store(&list)
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: read, UpdateFunc: func(_, object any) { read(object) }, DeleteFunc: func(any) { t.Store(nil) },
	})
	return err
}
