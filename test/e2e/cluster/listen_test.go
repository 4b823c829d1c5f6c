//go:build linux && e2e_install

package installed

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// stateListen is that of a listening socket in /proc/net/tcp.
const stateListen = "0A"

// listeners returns where a process listens, by TCP.
func listeners(t *testing.T, pid int) (found []netip.AddrPort) {
	t.Helper()
	own := map[string]bool{} // its sockets, by inode
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	testkit.Check(t, err)
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil { // some are closed meanwhile
			own[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		testkit.Check(t, err)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != stateListen || !own[f[9]] {
				continue
			}
			at, err := socketAddress(f[1])
			testkit.Check(t, err)
			found = append(found, at)
		}
	}
	return found
}

// socketAddress reads an address of /proc/net/tcp: words of the machine's byte order in hexadecimal, and a port.
func socketAddress(text string) (none netip.AddrPort, err error) {
	words, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(words)
	if err != nil {
		return none, err
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return none, err
	}
	address, ok := netip.AddrFromSlice(raw)
	if !ok {
		return none, fmt.Errorf("%q is not an address", text)
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(number)), nil
}
