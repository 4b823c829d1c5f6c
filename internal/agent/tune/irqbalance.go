package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Bans stands for the CPUs that irqbalance leaves: not a file, but what the daemon answers and takes by its socket in
// the folder of this name. What it takes counts from its next round on, and is lost when it ends.
const Bans = "run/irqbalance"

// askTime bounds one exchange with irqbalance, whose main loop may be at work.
const askTime = 2 * time.Second

// balancer returns the name of the socket of the running irqbalance, which contains its process id: of those that are
// left behind none answers. An error for which errors.Is(err, fs.ErrNotExist) holds where none runs with a socket.
func balancer(root host.Root) (string, error) {
	entries, err := os.ReadDir(root.Path(Bans))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		pid, isSocket := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".sock"), "irqbalance")
		if _, err := strconv.Atoi(pid); err != nil || !isSocket || !strings.HasSuffix(e.Name(), ".sock") {
			continue
		}
		if comm, err := os.ReadFile(root.Path("proc", pid, "comm")); err == nil && string(comm) == "irqbalance\n" {
			return e.Name(), nil
		}
	}
	return "", fmt.Errorf("%s: %w", root.Path(Bans), fs.ErrNotExist)
}

// readBans returns the CPUs that irqbalance leaves, in list format.
func readBans(root host.Root) (string, error) {
	answer, err := tell(root, "setup")
	if err != nil {
		return "", err
	}
	_, mask, found := strings.Cut(answer, "BANNED ")
	if !found {
		return "", fmt.Errorf("irqbalance answers %.64q, without BANNED", answer)
	}
	mask = strings.Trim(mask, " \n\x00")
	if mask == "" {
		return "", nil
	}
	cpus, err := host.ParseMap(mask)
	if err != nil {
		return "", fmt.Errorf("irqbalance: %w", err)
	}
	return cpuset.FormatIDs(cpus), nil
}

// writeBans replaces the CPUs that irqbalance leaves; "" are those of its own configuration.
func writeBans(root host.Root, cpus string) error {
	if cpus == "" {
		cpus = "NULL"
	}
	// irqbalance cuts a command off at 500 bytes: a list that is cut would name other CPUs.
	command := "settings cpus " + cpus
	if len(command) >= 500 {
		return fmt.Errorf("the list of %d bytes is longer than irqbalance reads", len(cpus))
	}
	_, err := tell(root, command)
	return err
}

// tell sends a command to irqbalance and returns what it answers until it closes the connection. The daemon asks the
// kernel who sends.
func tell(root host.Root, command string) (answer string, err error) {
	name, err := balancer(root)
	if err != nil {
		return "", err
	}
	dialer := net.Dialer{Timeout: askTime}
	c, err := dialer.DialContext(context.Background(), "unix", root.Path(path.Join(Bans, name)))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("%w: %w", err, fs.ErrNotExist) // it has ended
	}
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(askTime)); err != nil {
		return "", err
	}
	who := syscall.UnixCredentials(&syscall.Ucred{
		Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()),
	})
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte(command), who, nil); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(c, 1<<20))
	return string(text), err
}
