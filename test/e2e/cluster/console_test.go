//go:build linux && e2e_install

package installed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

const (
	console        = "tenon-console"
	consoleProgram = "kubectl-tenon"
	consoleHost    = console + "." + home + ".svc"
)

// serveConsole installs the console, whose pod has no rights, no token and nothing to write to, and asks it with
// tokens. No DNS serves the stage, so the console gets the address of the API server.
func (c *cluster) serveConsole(t *testing.T) {
	chart := filepath.Join(c.root, "deploy/chart")
	c.helm(t, "upgrade", "tenon", chart, "--reuse-values", "--set", "console.enabled=true",
		"--set", "console.extraArgs={--server=https://"+serviceAddress+"}")
	var pod corev1.Pod
	stage.Await(t, "the console", func() error {
		pods := c.pods(t, console)
		if len(pods) != 1 {
			return fmt.Errorf("%d pods", len(pods))
		}
		if pod = pods[0]; !isReady(&pod) {
			return errors.New(state(&pod))
		}
		return nil
	})
	root := fmt.Sprintf("/proc/%d/root", c.isConfined(t, &pod, "65532"))
	if _, err := os.Stat(root + "/var/run/secrets/kubernetes.io"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pod has a token: %v", err)
	}
	for _, folder := range []string{"/", "/etc/tenon/tls"} {
		file := filepath.Join(root, folder, "written")
		if err := os.WriteFile(file, nil, 0o600); err == nil {
			t.Errorf("%s can be written to", folder)
			testkit.Check(t, os.Remove(file))
		}
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "visitor"}}
	_, err := c.client.CoreV1().ServiceAccounts(work).Create(t.Context(), account, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: work, Name: account.Name}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	token := func(name string) string {
		made, err := c.client.CoreV1().ServiceAccounts(work).CreateToken(t.Context(), name,
			&authentication.TokenRequest{}, metav1.CreateOptions{})
		testkit.Check(t, err)
		return made.Status.Token
	}
	all, none := token(account.Name), token("default")
	const noToken = "the token is missing"
	client := c.consoleClient(t, pod.Status.PodIP)
	for name, one := range map[string]struct {
		path, token, host string
		status            int
		says              []string
	}{
		"the page":              {"/", "", consoleHost, http.StatusOK, []string{"<script"}},
		"another host":          {"/", "", "evil.example", http.StatusForbidden, []string{"evil.example"}},
		"no token":              {"topic=nodes", "", consoleHost, http.StatusUnauthorized, []string{noToken}},
		"a forged token":        {"topic=nodes", "forged", consoleHost, http.StatusUnauthorized, []string{noToken}},
		"a user without rights": {"topic=pending", none, consoleHost, http.StatusOK, []string{"cannot list resource"}},
		"a user with all rights": {
			"topic=nodes&topic=decisions&topic=status", all, consoleHost, http.StatusOK,
			[]string{nodeName, "DecisionList", "the scheduler that leads answers"},
		},
	} {
		stage.Await(t, name, func() error {
			path := one.path
			if !strings.HasPrefix(path, "/") {
				path = "/api/v1/stream?" + path
			}
			status, text, err := askConsole(t.Context(), client, one.host, path, one.token)
			if err != nil {
				return err
			}
			for _, want := range one.says {
				if !strings.Contains(text, want) {
					err = fmt.Errorf("%q is missing in %s", want, text)
				}
			}
			if status != one.status {
				err = fmt.Errorf("HTTP status %d, want %d: %s", status, one.status, text)
			}
			return err
		})
	}
	c.helm(t, "upgrade", "tenon", chart, "--reuse-values", "--set", "console.enabled=false")
	c.isWell(t)
}

// consoleClient reaches the console at its address. It knows the authority of the installation alone, and the name of
// the Service.
func (c *cluster) consoleClient(t *testing.T, address string) *http.Client {
	published, err := c.client.CoreV1().ConfigMaps(home).Get(t.Context(), "tenon-ca", metav1.GetOptions{})
	testkit.Check(t, err)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(published.Data["ca.crt"]))
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: authorities, ServerName: consoleHost, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(address, "8443"))
		},
	}}
}

// askConsole returns an answer, of a stream the first round.
func askConsole(ctx context.Context, client *http.Client, host, path, token string,
) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+consoleHost+path, nil)
	if err != nil {
		return 0, "", err
	}
	request.Host = host
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	var read strings.Builder
	buffer := make([]byte, 64<<10)
	for !strings.Contains(read.String(), "event: read") {
		n, err := answer.Body.Read(buffer)
		read.Write(buffer[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, "", err
		}
	}
	return answer.StatusCode, read.String(), nil
}
