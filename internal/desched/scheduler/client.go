package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/view"
)

const (
	// attempts bounds how often a question is asked: another replica leads, or too many questions are being answered.
	attempts = 5
	pause    = 500 * time.Millisecond
	// timeout is above the two seconds that an answer may take.
	timeout   = 5 * time.Second
	maxAnswer = 16 << 20
)

// Client asks the scheduler at an address. Safe for concurrent use.
type Client struct {
	// Reserving asks for nodes where a Reservation can be beside the pod: its quotas count both. It is set before use.
	Reserving bool

	target string
	http   *http.Client
}

// New returns a client of the scheduler at an address, such as https://tenon-scheduler.tenon-system.svc:10259, with the
// credentials of config. authority is the file of the certificates that the server's must be signed by. A plain address
// is shown no credentials and must be on loopback.
func New(config *rest.Config, address, authority string) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
		return nil, fmt.Errorf("scheduler address %q is not allowed: use https://HOST:PORT", address)
	}
	target := base.JoinPath("/apis/v1/whatif").String()
	if base.Scheme == "http" {
		if base.Hostname() != "127.0.0.1" && base.Hostname() != "::1" {
			return nil, fmt.Errorf("scheduler address %q is plain and not on 127.0.0.1: use https", address)
		}
		return &Client{target: target, http: &http.Client{Timeout: timeout}}, nil
	}
	config = rest.CopyConfig(config)
	config.Insecure, config.CAData, config.CAFile, config.ServerName = false, nil, authority, ""
	config.Timeout = timeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the scheduler: %w", err)
	}
	// The transport shows the credentials to every server that it is sent to.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{target: target, http: client}, nil
}

// Refused is the scheduler's refusal of a question.
type Refused struct{ Text string }

// Error returns the text.
func (r *Refused) Error() string { return r.Text }

var errBusy = errors.New("the scheduler does not answer now")

// WhatIf asks a question. A question that the scheduler refuses is a *Refused.
func (c *Client) WhatIf(ctx context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode a question: %w", err)
	}
	for left := attempts; ; left-- {
		answer, err := c.ask(ctx, text)
		if !errors.Is(err, errBusy) || left == 1 {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// Fit returns the node of nodes on which the scheduler would place a pod like this one if this one were gone; "" where
// it would place it on none. The pod's own node counts if it is one of nodes.
func (c *Client) Fit(ctx context.Context, pod *corev1.Pod, nodes []string) (string, error) {
	if len(nodes) == 0 {
		return "", nil
	}
	key := pod.Namespace + "/" + pod.Name
	q := &view.WhatIf{Ask: view.Ask{Pods: []string{key}, Nodes: nodes, Reserve: c.Reserving}}
	if pod.Spec.NodeName != "" {
		q.Changes = []view.Change{{RemovePod: key}}
	}
	answer, err := c.WhatIf(ctx, q)
	if err != nil || len(answer.Placements) == 0 {
		return "", err
	}
	return answer.Placements[0].Node, nil
}

func (c *Client) ask(ctx context.Context, question []byte) (*view.WhatIfAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target, bytes.NewReader(question))
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler: %w", err)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		answer := &view.WhatIfAnswer{}
		if err := json.Unmarshal(text, answer); err != nil {
			return nil, fmt.Errorf("read the scheduler's answer: %w", err)
		}
		return answer, nil
	}
	var refused struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &refused) != nil || refused.Message == "" {
		refused.Message = response.Status
	}
	switch response.StatusCode {
	case http.StatusBadRequest:
		return nil, &Refused{refused.Message}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: %s", errBusy, refused.Message)
	}
	return nil, fmt.Errorf("error from the scheduler: %s", refused.Message)
}
