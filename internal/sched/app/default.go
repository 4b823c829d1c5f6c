package app

import "k8s.io/kubernetes/pkg/scheduler/apis/config"

// DefaultProfiles returns the profiles that hold without --config, one for each scheduler name, for those who decide as
// this scheduler does without running it.
func DefaultProfiles(schedulerNames []string) ([]config.KubeSchedulerProfile, error) {
	cfg, err := defaultConfig(schedulerNames)
	if err != nil {
		return nil, err
	}
	return cfg.Profiles, nil
}
