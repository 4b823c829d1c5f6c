package app

import "k8s.io/kubernetes/pkg/scheduler/apis/config"

// DefaultProfile returns the profile that holds without --config, for those who decide as this scheduler does without
// running it.
func DefaultProfile() (config.KubeSchedulerProfile, error) {
	cfg, err := defaultConfig([]string{SchedulerName})
	if err != nil {
		return config.KubeSchedulerProfile{}, err
	}
	return cfg.Profiles[0], nil
}
