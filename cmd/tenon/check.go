package main

import (
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/config/runtimeproxy"
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/cli"
	manager "github.com/tenon-project/tenon/internal/control/app"
	scheduler "github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sim"
)

// checks are those of the components themselves, as they are made at start.
func checks() cli.Checks {
	return cli.Checks{
		Config: map[string]func(*strict.Document) (strict.Settings, error){
			v1alpha1.AgentConfigurationKind:   checkAgent,
			v1alpha1.ManagerConfigurationKind: manager.CheckConfig,
			runtimeproxy.Kind:                 checkProxy,
			scheduler.ConfigurationKind: func(d *strict.Document) (strict.Settings, error) {
				err := scheduler.CheckConfig(d)
				return d.Settings(), err
			},
			descheduler.ConfigurationKind: checkDescheduler,
			descheduler.PolicyKind:        checkDescheduler,
		},
		Manifests: sim.Check,
	}
}

func checkDescheduler(d *strict.Document) (strict.Settings, error) {
	settings, err := descheduler.ReadDocument(d)
	return settings.Written, err
}
