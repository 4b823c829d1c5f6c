package vm

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	prompt = "(qemu) "
	// monitorLimit bounds one command; saving 300 MB takes a second on an idle machine.
	monitorLimit = 2 * time.Minute
)

// order gives one command to the emulator's monitor.
func (m *machine) order(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, monitorLimit)
	defer cancel()
	conn, err := m.dial(ctx, "monitor")
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	if _, err := untilPrompt(conn); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	reply, err := untilPrompt(conn)
	if err != nil {
		return fmt.Errorf("monitor: %s: %w", command, err)
	}
	// The first line is the echo, edited as it was typed; a command that went well says nothing more.
	if _, said, _ := strings.Cut(reply, "\n"); strings.TrimSpace(strings.TrimSuffix(said, prompt)) != "" {
		return fmt.Errorf("monitor: %s: %s", command, strings.TrimSpace(strings.TrimSuffix(said, prompt)))
	}
	return nil
}

func untilPrompt(conn net.Conn) (string, error) {
	var text bytes.Buffer
	part := make([]byte, 4096)
	for {
		n, err := conn.Read(part)
		if err != nil {
			return "", err
		}
		text.Write(part[:n])
		if bytes.HasSuffix(text.Bytes(), []byte(prompt)) {
			return text.String(), nil
		}
	}
}
