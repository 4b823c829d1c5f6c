//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/view"
)

const askLimit = 3 * time.Second

// AskRuntime asks a CRI socket who listens there.
func AskRuntime(ctx context.Context) func(socket string) (name, version string, err error) {
	return func(socket string) (string, string, error) {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		c, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return "", "", err
		}
		defer func() { _ = c.Close() }() // the answer is there
		answer, err := cri.NewRuntimeServiceClient(c).Version(ctx, &cri.VersionRequest{})
		if err != nil {
			return "", "", err
		}
		return answer.RuntimeName, strings.TrimPrefix(answer.RuntimeVersion, "v"), nil
	}
}

// AskAgent asks the agent at an address whether it is ready.
func AskAgent(ctx context.Context, address string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // it names the address
		}
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(io.LimitReader(response.Body, 1024))
		switch {
		case err != nil:
			return err
		case response.StatusCode != http.StatusOK:
			return errors.New(strings.TrimSpace(string(text)))
		}
		return nil
	}
}

// OfMachine checks the machine below a root, and queries its runtime and the agent at an address. With a root other
// than / it sends no queries, as the sockets and the address are those of this machine; an empty address is not queried
// either. A root that is not a directory is an error.
func OfMachine(ctx context.Context, root host.Root, agent string) (Diagnosis, error) {
	return examine(ctx, root, agent, "machine ", Machine)
}

// OfGPUs checks what NVIDIA's cards of the machine below a root need, as OfMachine does.
func OfGPUs(ctx context.Context, root host.Root) (Diagnosis, error) {
	return examine(ctx, root, "", "GPUs of machine ", GPUs)
}

func examine(ctx context.Context, root host.Root, agent, subject string, check func(Options) []Finding,
) (Diagnosis, error) {
	info, err := os.Stat(root.Path())
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", root.Path())
	}
	if err != nil {
		return Diagnosis{}, fmt.Errorf("look at the machine: %w", err)
	}
	o := Options{Root: root}
	if root.Path() == "/" {
		o.AskRuntime = AskRuntime(ctx)
		if agent != "" {
			o.AskAgent = AskAgent(ctx, agent)
		}
	}
	return view.NewDiagnosis(subject+root.Path(), check(o)), nil
}
