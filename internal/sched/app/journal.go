package app

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/sched/journal"
)

// newJournal returns the recorder of a scheduler with a configuration.
func newJournal(o *Options, c *config.KubeSchedulerConfiguration) (*journal.Recorder, error) {
	text, err := EncodeConfig(c)
	if err != nil {
		return nil, err
	}
	return journal.New(o.Journal, journal.Snapshot{
		Build: version.String(), Kubernetes: version.Kubernetes(), Config: text, Trusted: o.TrustedNames,
	}, export), nil
}

// EncodeConfig returns a configuration as JSON, without what only connects to a cluster.
func EncodeConfig(c *config.KubeSchedulerConfiguration) ([]byte, error) {
	c = c.DeepCopy()
	c.ClientConnection.Kubeconfig = ""
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("encode the configuration: no serializer for %s", runtime.ContentTypeJSON)
	}
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, configv1.SchemeGroupVersion), c)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return bytes.TrimSpace(text), nil
}

// DecodeConfig reads what EncodeConfig wrote. It adds no defaults: all values and plugins are there.
func DecodeConfig(text []byte) (*config.KubeSchedulerConfiguration, error) {
	var written configv1.KubeSchedulerConfiguration
	err := json.Unmarshal(text, &written)
	if err == nil {
		err = written.DecodeNestedObjects(scheme.Codecs.UniversalDecoder())
	}
	c := &config.KubeSchedulerConfiguration{}
	if err == nil {
		err = scheme.Scheme.Convert(&written, c, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return c, nil
}

// follow records the events of what plugins only list.
func (s *Scheduler) follow() {
	f := s.config.InformerFactory
	s.journal.Follow(f.Core().V1().Namespaces().Informer(), f.Core().V1().Services().Informer(),
		f.Apps().V1().ReplicaSets().Informer(), f.Apps().V1().StatefulSets().Informer(),
		f.Policy().V1().PodDisruptionBudgets().Informer())
}
