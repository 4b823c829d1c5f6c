// Command record runs commands in a terminal of its own and writes what they print, and when, as an animated picture:
//
//	record FILE.svg COMMAND…
//
// Each command is one scene: it is typed, its output appears as it did, and stays for a while. Pauses are cut to a
// second. The picture needs no script and no font of its own; where animations are off it shows the last scene.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: record FILE.svg COMMAND...")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, commands []string) error {
	scenes := make([]scene, 0, len(commands))
	for _, command := range commands {
		s, err := play(ctx, command)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		scenes = append(scenes, s)
	}
	return os.WriteFile(file, draw(scenes), 0o644) //nolint:gosec // a picture that everyone may read
}

// play runs a command in a terminal, which it leaves empty.
func play(ctx context.Context, command string) (scene, error) {
	s := scene{command: command}
	ours, theirs, err := terminal()
	if err != nil {
		return s, err
	}
	defer func() { _ = ours.Close() }()
	c := exec.CommandContext(ctx, "bash", "-c", command)
	c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
	c.Env = append(os.Environ(), "TERM=xterm-256color")
	begun := time.Now()
	if err := c.Start(); err != nil {
		return s, err
	}
	_ = theirs.Close()
	screen := newScreen()
	buffer := make([]byte, 1<<16)
	for {
		n, err := ours.Read(buffer)
		screen.write(string(buffer[:n]), time.Since(begun))
		if err != nil { // Linux reports EIO once the last writer has closed it
			break
		}
	}
	s.lines = screen.end()
	_, _ = io.WriteString(os.Stdout, command+"\n")
	return s, c.Wait()
}
