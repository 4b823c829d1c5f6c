package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// newJournal returns the recorder of a scheduler with a configuration.
func newJournal(o *Options, c *config.KubeSchedulerConfiguration) (*journal.Recorder, error) {
	text, err := EncodeConfig(c)
	if err != nil {
		return nil, err
	}
	return journal.New(o.Journal, journal.Snapshot{
		Build: version.String(), Config: text, Trusted: o.TrustedNames,
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

// record puts the journal around the core, after all else.
func (s *Scheduler) record() {
	j, core := s.journal, s.config.InformerFactory.Core().V1()
	j.Follow(core.Namespaces().Informer(), core.Services().Informer(),
		s.config.InformerFactory.Apps().V1().ReplicaSets().Informer(),
		s.config.InformerFactory.Apps().V1().StatefulSets().Informer(),
		s.config.InformerFactory.Policy().V1().PodDisruptionBudgets().Informer())
	s.core.NextPod = j.Next(s.rounds.Next(j.Pop(s.core.NextPod)))
	s.core.SchedulePod = j.Schedule(s.core.SchedulePod)
	s.core.FailureHandler = j.Fail(s.core.FailureHandler)
	s.core.SchedulingQueue = j.Queue(s.core.SchedulingQueue)
	s.core.Cache = j.Cache(s.core.Cache)
	s.decisions.Scored = j.Scored
	for _, f := range s.core.Profiles {
		ranked := f.(*ranking.Profile)
		ranked.Unreserving = j.Unreserving
		Watch(ranked, &j.Cycle)
	}
}

// Watch makes a profile draw lots by the seed of a cycle, which sees what the profile does.
func Watch(f *ranking.Profile, c *journal.Cycle) {
	f.Seed, f.Reserved, f.Begun, f.Sampled = c.Seed, c.Reserved, c.Begun, c.Sampled
	if p := PreemptionOf(f); p != nil {
		OrderVictims(p, func(node string) int64 { return int64(ranking.Lot(c.Seed(), node)) }, false)
	}
}

// ServeGangs names to the gangs of a core the schedulers that start pods together.
func ServeGangs(core *scheduler.Scheduler, gangs *kube.Gangs) {
	var served []string
	for name, f := range core.Profiles {
		if slices.ContainsFunc(f.ListPlugins().Permit.Enabled, func(p config.Plugin) bool {
			return p.Name == coscheduling.Name
		}) {
			served = append(served, name)
		}
	}
	gangs.Serve(served...)
}
