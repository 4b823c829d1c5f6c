package plane

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// controllers returns those of kube-controller-manager's controllers that a cluster without volumes, clouds and a pod
// network has work for.
func controllers() []string {
	return []string{
		"deployment-controller", "replicaset-controller", "replicationcontroller-controller",
		"statefulset-controller", "daemonset-controller",
		"job-controller", "cronjob-controller", "ttl-after-finished-controller",
		"garbage-collector-controller", "namespace-controller", "pod-garbage-collector-controller",
		"node-lifecycle-controller", "taint-eviction-controller",
		// Without it a PodDisruptionBudget allows no disruption at all and every eviction is refused.
		"disruption-controller",
		"serviceaccount-controller", "root-ca-certificate-publisher-controller", "clusterrole-aggregation-controller",
		"endpointslice-controller", "resourcequota-controller", "resourceclaim-controller",
		"persistentvolume-binder-controller",
		// Takes the finalizer from native PodGroups, which else could never be deleted.
		"podgroup-protection-controller",
	}
}

// StartControllers starts kube-controller-manager with the credentials in kubeconfig. It returns at once: the
// controllers fill their caches by themselves.
func (p *Plane) StartControllers(ctx context.Context, kubeconfig string) error {
	tokens, err := p.config.PKI.TokenKey()
	if err != nil {
		return err
	}
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	flags := o.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	o.ParsedFlags = &flags
	if err := parse(flags.FlagSets, []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + tokens.KeyFile,
		"--root-ca-file=" + p.config.PKI.CertificateFile(),
		"--controllers=" + strings.Join(controllers(), ","),
	}, o.ComponentGlobalsRegistry); err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	config, err := o.Config(ctx, app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	if err != nil {
		return fmt.Errorf("configure controllers: %w", err)
	}
	complete := config.Complete()
	p.supervise("controllers", func(ctx context.Context) error {
		defer configz.Delete(app.ConfigzName) // a process registers it once
		return app.Run(ctx, complete)
	})
	return nil
}
