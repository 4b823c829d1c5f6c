package kubeconf

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/pki"
)

// Context is the name of the context, the cluster and the user in every file.
const Context = "tenon"

// Extension is the name of the extension of a cluster entry that contains the address of the scheduler's diagnostics.
const Extension = "tenon.sh"

// Cluster is the API server that a kubeconfig leads to.
type Cluster struct {
	Server    string `json:"-"` // https://127.0.0.1:PORT
	Authority []byte `json:"-"` // PEM
	// Diagnostics is http://127.0.0.1:PORT of the scheduler's diagnostics; may be empty. Standby are the addresses of
	// further replicas; any of the scheduler's replicas may come to lead.
	Diagnostics string   `json:"diagnostics"`
	Standby     []string `json:"standby,omitempty"`
	// Descheduler is http://127.0.0.1:PORT of the descheduler.
	Descheduler string `json:"descheduler,omitempty"`
}

// WriteCertificate writes a kubeconfig, data embedded, whose user is the holder of a client certificate.
func WriteCertificate(path string, c Cluster, p pki.Pair) error {
	return write(path, c, &api.AuthInfo{ClientCertificateData: p.Cert, ClientKeyData: p.Key})
}

// WriteToken writes a kubeconfig whose user is the bearer of the token in a file, which may change while it is used.
func WriteToken(path string, c Cluster, tokenFile string) error {
	return write(path, c, &api.AuthInfo{TokenFile: tokenFile})
}

func write(path string, c Cluster, user *api.AuthInfo) error {
	cluster := &api.Cluster{Server: c.Server, CertificateAuthorityData: c.Authority}
	if c.Diagnostics != "" {
		address, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encode diagnostics address: %w", err)
		}
		cluster.Extensions = map[string]runtime.Object{
			Extension: &runtime.Unknown{Raw: address, ContentType: runtime.ContentTypeJSON},
		}
	}
	text, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{Context: cluster},
		AuthInfos:      map[string]*api.AuthInfo{Context: user},
		Contexts:       map[string]*api.Context{Context: {Cluster: Context, AuthInfo: Context}},
		CurrentContext: Context,
	})
	if err != nil {
		return fmt.Errorf("encode kubeconfig %s: %w", filepath.Base(path), err)
	}
	return datadir.WriteFile(path, text, 0o600)
}

// BuiltIn returns config for a client of built-in kinds alone: it speaks protobuf, which takes client and server half
// the work of JSON.
func BuiltIn(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}
