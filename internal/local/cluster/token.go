package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
)

const (
	agentAccount  = "tenon-agent"
	tokenLife     = time.Hour
	tokenInterval = 250 * time.Millisecond // between looks for nodes without a token, at the start
	tokenPause    = 10 * time.Second       // once all have one
	tokenRequests = 16                     // sent at once
)

// tokens renews a token for the agent of each node, as a kubelet does for its pods. A token is bound to the Node
// object, so that the API server knows the node of its bearer; a certificate cannot contain that.
type tokens struct {
	dir     datadir.Dir
	client  kubernetes.Interface
	cluster kubeconf.Cluster
	nodes   []string
	held    map[string]token
}

type token struct {
	node  types.UID
	renew time.Time // when to renew the token: after half of its life
}

func (t *tokens) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	t.held = make(map[string]token, len(t.nodes))
	for {
		pause, begun := tokenPause, time.Now()
		if err := t.renew(ctx, begun); err != nil && ctx.Err() == nil {
			logger.Error(err, "Failed to renew tokens of agents, will retry")
		}
		if len(t.held) < len(t.nodes) {
			// With many nodes a List takes CPU time from the nodes that start.
			pause = max(tokenInterval, time.Since(begun))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// renew makes the tokens that are missing, past half of their life, or bound to a Node that was created again.
func (t *tokens) renew(ctx context.Context, now time.Time) error {
	list, err := t.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	known := make(map[string]types.UID, len(list.Items))
	for i := range list.Items {
		known[list.Items[i].Name] = list.Items[i].UID
	}
	var due []string
	for _, name := range t.nodes {
		uid, exists := known[name]
		if held := t.held[name]; exists && (held.node != uid || !now.Before(held.renew)) {
			due = append(due, name)
		}
	}
	errs := make([]error, len(due)) // a request that fails must not keep other nodes from their tokens
	workqueue.ParallelizeUntil(ctx, tokenRequests, len(due), func(i int) {
		errs[i] = t.request(ctx, due[i], known[due[i]])
	})
	for i, name := range due {
		if errs[i] == nil && ctx.Err() == nil {
			t.held[name] = token{node: known[name], renew: now.Add(tokenLife / 2)}
		}
	}
	return errors.Join(errs...)
}

func (t *tokens) request(ctx context.Context, node string, uid types.UID) error {
	seconds := int64(tokenLife / time.Second)
	answer, err := t.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, agentAccount,
		&authentication.TokenRequest{
			Spec: authentication.TokenRequestSpec{
				ExpirationSeconds: &seconds,
				BoundObjectRef: &authentication.BoundObjectReference{
					APIVersion: corev1.SchemeGroupVersion.String(),
					Kind:       "Node", Name: node, UID: uid,
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request token for the agent of %s: %w", node, err)
	}
	kubeconfig := t.dir.Credential(AgentCredential(node))
	file := filepath.Join(t.dir.PKI(), AgentCredential(node)+".token")
	if err := datadir.WriteFile(file, []byte(answer.Status.Token), 0o600); err != nil {
		return err
	}
	// The kubeconfig comes last: who finds it finds the token.
	return kubeconf.WriteToken(kubeconfig, t.cluster, file)
}
