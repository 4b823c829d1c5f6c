//go:build linux

package stage

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
)

// loopbackIndex is the number of lo in every network namespace.
const loopbackIndex = 1

// raiseLoopback sets lo up, by a netlink message: programs that could do it may be missing.
func raiseLoopback() error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	const length = syscall.SizeofNlMsghdr + syscall.SizeofIfInfomsg
	order := binary.NativeEndian
	m := make([]byte, 0, length)
	m = order.AppendUint32(m, length)
	m = order.AppendUint16(m, syscall.RTM_NEWLINK)
	m = order.AppendUint16(m, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	m = order.AppendUint32(m, 1)              // sequence
	m = order.AppendUint32(m, 0)              // port
	m = append(m, syscall.AF_UNSPEC, 0)       // family, padding
	m = order.AppendUint16(m, 0)              // type
	m = order.AppendUint32(m, loopbackIndex)  //
	m = order.AppendUint32(m, syscall.IFF_UP) // flags
	m = order.AppendUint32(m, syscall.IFF_UP) // which of them change
	if err := syscall.Sendto(fd, m, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for _, m := range messages {
		if m.Header.Type != syscall.NLMSG_ERROR || len(m.Data) < 4 {
			continue
		}
		if code := int32(order.Uint32(m.Data)); code != 0 {
			return fmt.Errorf("set lo up: %w", syscall.Errno(-code))
		}
	}
	return nil
}
