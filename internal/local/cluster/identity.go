package cluster

import (
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/pki"
)

const namespace = "tenon-system"

// Names of the credentials in the data folder; see datadir.Dir.Credential.
const (
	Scheduler   = "tenon-scheduler"
	Manager     = "tenon-manager"
	Descheduler = "tenon-descheduler"
	controllers = "kube-controller-manager"
	// Webhooks and SchedulerServing are serving certificates, not users.
	Webhooks         = "webhooks"
	SchedulerServing = "scheduler"
	KubeletServing   = "kubelets"
)

// KubeletCredential returns the name of the credential of a simulated node's kubelet.
func KubeletCredential(node string) string { return "kubelet-" + node }

// AgentCredential returns the name of the credential of a node's agent. It appears after the node has.
func AgentCredential(node string) string { return "agent-" + node }

// identities are the cluster's certificate authority and the credentials that are made with it.
type identities struct {
	authority *pki.Authority
	cluster   kubeconf.Cluster
	admin     pki.Pair
}

// serviceAccount returns the subject that a component has on other clusters by the token of its service account.
func serviceAccount(name string) pki.Subject {
	return pki.Subject{
		User:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

// writeIdentities makes the credentials that do not depend on a running API server.
func writeIdentities(dir datadir.Dir, ports *datadir.Ports, nodes []string, schedulers int, now time.Time) (*identities,
	error,
) {
	authority, err := pki.Open(dir.PKI(), now)
	if err != nil {
		return nil, err
	}
	id := &identities{authority: authority, cluster: kubeconf.Cluster{
		Server: "https://" + ports.Address(datadir.APIServer), Authority: authority.Certificate(),
	}}
	if id.admin, err = authority.Issue("admin",
		pki.Subject{User: "admin", Groups: []string{"system:masters"}}); err != nil {
		return nil, err
	}
	user := id.cluster
	user.Diagnostics = "http://" + ports.Address(datadir.Diagnostics)
	user.Descheduler = "http://" + ports.Address(datadir.Descheduler)
	for replica := 1; replica < schedulers; replica++ {
		user.Standby = append(user.Standby, "http://"+ports.Address(datadir.Diagnostics.Of(replica)))
	}
	if err := kubeconf.WriteCertificate(dir.Kubeconfig(), user, id.admin); err != nil {
		return nil, err
	}
	subjects := map[string]pki.Subject{
		Scheduler:   serviceAccount(Scheduler),
		Manager:     serviceAccount(Manager),
		Descheduler: serviceAccount(Descheduler),
		controllers: {User: "system:kube-controller-manager"},
	}
	for _, name := range nodes {
		subjects[KubeletCredential(name)] = pki.Subject{User: "system:node:" + name, Groups: []string{"system:nodes"}}
	}
	for _, name := range []string{Webhooks, SchedulerServing, KubeletServing} {
		subjects[name] = pki.Subject{User: name, Hosts: []string{"localhost", "127.0.0.1"}}
	}
	for name, subject := range subjects {
		pair, err := authority.Issue(name, subject)
		if err == nil && len(subject.Hosts) == 0 {
			err = kubeconf.WriteCertificate(dir.Credential(name), id.cluster, pair)
		}
		if err != nil {
			return nil, err
		}
	}
	return id, nil
}

func (id *identities) adminConfig() *rest.Config {
	return &rest.Config{
		Host: id.cluster.Server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: id.cluster.Authority, CertData: id.admin.Cert, KeyData: id.admin.Key,
		},
		QPS: -1, // no limit on the client's side
	}
}
