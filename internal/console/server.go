package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Answer is what is known of a topic.
type Answer struct {
	JSON []byte
	// Content is what of the answer counts as a change: ages do not.
	Content string
	// Notes are sentences about the answer, such as what could not be read.
	Notes []string
	// Keep is for how long a stream keeps the answer before it reads the topic again. 0 for most topics: each round
	// reads them.
	Keep time.Duration
}

// Source answers for a cluster with the rights of the user.
type Source interface {
	// Read answers a topic. A topic that does not exist is a *Refusal.
	Read(ctx context.Context, topic string) (Answer, error)
	// WhatIf answers a question with JSON. An error of the user is a *Refusal.
	WhatIf(ctx context.Context, question []byte) ([]byte, error)
}

// Refusal is an error with its HTTP status.
type Refusal struct {
	Status int
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// Options are the settings of a server.
type Options struct {
	// SignIn returns what the bearer of a token may ask. Where the token is not valid, or no longer, the error is a
	// *Refusal. It is asked again before each round of a stream.
	SignIn func(ctx context.Context, token string) (Source, error)
	Files  fs.FS // of the pages, with index.html
	// Port is that of a listener on loopback, over HTTP. It is 0 for one that other machines reach, over HTTPS.
	Port int
	// Hosts are the names and addresses, besides loopback, under which other machines reach the server.
	Hosts []string
	// Every is how often the topics of a stream are read. A round that takes long is followed by a longer pause.
	Every time.Duration
}

const (
	// A console on loopback is for one person. The tabs of a browser share a stream.
	maxBrowsers = 8
	maxStreams  = 64
	maxTopics   = 64
	// maxSignIns bounds the tokens that the API server is asked about at one time.
	maxSignIns  = 16
	maxQuestion = 1 << 20
	// Of the time, reads of a stream may take one part in paceFactor+1.
	paceFactor   = 4
	readTimeout  = time.Minute
	writeTimeout = 30 * time.Second
)

// policy lets a page load what this server has and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"worker-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// OneToken signs in who shows a token, until it expires.
func OneToken(source Source, token string, expires time.Time) func(context.Context, string) (Source, error) {
	return func(_ context.Context, shown string) (Source, error) {
		switch {
		case subtle.ConstantTimeCompare([]byte(shown), []byte(token)) != 1:
			const text = "the token is missing or wrong: open the address that tenon console prints"
			return nil, &Refusal{http.StatusUnauthorized, text}
		case !time.Now().Before(expires):
			const text = "the token has expired: run tenon console for a new address"
			return nil, &Refusal{http.StatusUnauthorized, text}
		}
		return source, nil
	}
}

type server struct {
	Options
	scheme  string
	mux     *http.ServeMux
	streams chan struct{} // holds an element for each open stream
	signIns chan struct{} // holds an element for each token that is looked at
	// compressed are the files of the pages that were asked for, compressed, by name.
	compressed sync.Map
}

// New returns the handler of a console.
func New(o Options) http.Handler {
	s := &server{
		Options: o, scheme: "http://", mux: http.NewServeMux(), streams: make(chan struct{}, maxBrowsers),
		signIns: make(chan struct{}, maxSignIns),
	}
	if o.Port == 0 {
		s.scheme, s.streams = "https://", make(chan struct{}, maxStreams)
	}
	s.mux.HandleFunc("GET /api/v1/stream", s.signedIn(s.stream))
	s.mux.HandleFunc("POST /api/v1/whatif", s.signedIn(s.whatIf))
	s.mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "%s %s does not exist", r.Method, r.URL.Path)
	})
	s.mux.HandleFunc("/", s.file)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	origin := r.Header.Get("Origin")
	switch {
	case s.Port != 0 && !isLoopback(r.Host, s.Port):
		const text = "host %q is not allowed: use 127.0.0.1:%d or localhost:%[2]d"
		writeError(w, http.StatusForbidden, text, r.Host, s.Port)
	case s.Port == 0 && !s.isNamed(r.Host):
		const text = "host %q is not allowed: use localhost or one of %s"
		writeError(w, http.StatusForbidden, text, r.Host, strings.Join(s.Hosts, ", "))
	case origin != "" && origin != s.scheme+r.Host, origin == "" && r.Method == http.MethodPost:
		writeError(w, http.StatusForbidden, "origin %q is not allowed: only pages of the console may ask", origin)
	default:
		s.mux.ServeHTTP(w, r)
	}
}

// isLoopback reports whether a Host header names this machine and the port.
func isLoopback(host string, port int) bool {
	name, number, err := net.SplitHostPort(host)
	if err != nil || number != fmt.Sprint(port) {
		return false
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

// isNamed reports whether a Host header names the server, whatever the port: a Service or kubectl port-forward may
// give it another one.
func (s *server) isNamed(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	return slices.Contains(s.Hosts, name) || isLoopback(net.JoinHostPort(name, "0"), 0)
}

// signIn returns what the sender of a request may ask.
func (s *server) signIn(r *http.Request) (Source, error) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		token = ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	select {
	case s.signIns <- struct{}{}:
		defer func() { <-s.signIns }()
	case <-ctx.Done():
		return nil, &Refusal{http.StatusTooManyRequests, "too many visitors sign in: try again"}
	}
	return s.SignIn(ctx, token)
}

func (s *server) signedIn(h func(http.ResponseWriter, *http.Request, Source)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		source, err := s.signIn(r)
		if err != nil {
			refuse(w, err)
			return
		}
		h(w, r, source)
	}
}

// update is a message of a stream: the answer to a topic, or why there is none.
type update struct {
	Topic  string          `json:"topic"`
	Read   time.Time       `json:"read"`
	Answer json.RawMessage `json:"answer,omitempty"`
	Notes  []string        `json:"notes,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// stream sends the answers to topics, and again those that have changed. After each round, read says that all others
// are as they were.
func (s *server) stream(w http.ResponseWriter, r *http.Request, source Source) {
	topics := r.URL.Query()["topic"]
	if len(topics) == 0 || len(topics) > maxTopics {
		const text = "%d topics are not allowed: use 1 to %d times topic=TOPIC"
		writeError(w, http.StatusBadRequest, text, len(topics), maxTopics)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		writeError(w, http.StatusTooManyRequests, "%d browsers follow the cluster: close one", cap(s.streams))
		return
	}
	ctx := r.Context()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	sent, kept := map[string]string{}, map[string]time.Time{} // until when an answer is kept
	for ctx.Err() == nil {
		begun := time.Now()
		for _, topic := range topics {
			if begun.Before(kept[topic]) {
				continue
			}
			message, content, keep := read(ctx, source, topic)
			if ctx.Err() != nil {
				return
			}
			kept[topic] = time.Now().Add(keep)
			if last, known := sent[topic]; known && last == content {
				continue
			}
			if err := send(w, "update", message); err != nil {
				return
			}
			sent[topic] = content
		}
		if err := send(w, "read", map[string]time.Time{"read": begun}); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(s.Every, paceFactor*time.Since(begun))):
		}
		// The token may have expired or been revoked.
		var err error
		if source, err = s.signIn(r); err != nil {
			return
		}
	}
}

// read returns the message about a topic, what of it counts as a change, and for how long it is kept.
func read(ctx context.Context, source Source, topic string) (message update, content string, keep time.Duration) {
	message = update{Topic: topic, Read: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	answer, err := source.Read(ctx, topic)
	if err != nil {
		message.Error = err.Error()
		return message, "error " + message.Error, 0
	}
	message.Answer, message.Notes = answer.JSON, answer.Notes
	return message, strings.Join(append([]string{"answer", answer.Content}, answer.Notes...), "\n"), answer.Keep
}

// send writes a server-sent event.
func send(w http.ResponseWriter, event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text); err != nil {
		return err
	}
	return out.Flush()
}

func (s *server) whatIf(w http.ResponseWriter, r *http.Request, source Source) {
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, "read the question: %v", err)
		return
	}
	answer, err := source.WhatIf(r.Context(), question)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the browser may have left
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

// file serves a file of the pages. Each other path is a view, whose page is index.html.
func (s *server) file(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeError(w, http.StatusMethodNotAllowed, "%s is not allowed: pages are read", r.Method)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	text, err := fs.ReadFile(s.Files, name)
	if err != nil {
		name = "index.html"
		text, err = fs.ReadFile(s.Files, name)
	}
	if err != nil {
		writeError(w, http.StatusInternalServerError, "%v", err)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	if name != "index.html" { // the names of the others change with their content
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		text = s.compress(name, text)
	}
	_, _ = w.Write(text) // the browser may have left
}

// compress returns the text of a file, compressed once.
func (s *server) compress(name string, text []byte) []byte {
	if known, found := s.compressed.Load(name); found {
		return known.([]byte)
	}
	var out bytes.Buffer
	zipped, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = zipped.Write(text)                                    // a buffer takes all
	_ = zipped.Close()
	s.compressed.Store(name, out.Bytes())
	return out.Bytes()
}

// refuse answers with an error, which is of the cluster unless it is a *Refusal.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if refused := (*Refusal)(nil); errors.As(err, &refused) {
		status = refused.Status
	}
	writeError(w, status, "%v", err)
}

func writeError(w http.ResponseWriter, status int, format string, arguments ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	message := fmt.Sprintf(format, arguments...)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message}) // the client may have left
}
