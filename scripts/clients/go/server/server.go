// Package server is what the programs share: the server at a port, and its death.
package server

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is a client of the server at a port of this machine.
func Client(port string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
}

// Must ends the program, which has failed, if there is an error.
func Must(err error) {
	Check(err == nil, "%v", err)
}

// Check ends the program, which has failed, unless what it claims holds.
func Check(holds bool, format string, arguments ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

// Until waits for a condition, for so long.
func Until(seconds int, what string, condition func() bool) {
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for !condition() {
		Check(time.Now().Before(deadline), "not within %d s: %s", seconds, what)
		time.Sleep(20 * time.Millisecond)
	}
}

var processID = regexp.MustCompile(`process_id:(\d+)`)

// Kill kills the server as a power cut would, and waits until the one that is started in its place answers.
func Kill(port string) {
	ctx := context.Background()
	client := Client(port)
	defer client.Close()
	process := func() int {
		info, err := client.Info(ctx, "server").Result()
		if err != nil {
			return 0
		}
		id, err := strconv.Atoi(processID.FindStringSubmatch(info)[1])
		Must(err)
		return id
	}
	dead := process()
	Check(dead != 0, "the server on port %s does not tell its process", port)
	Must(syscall.Kill(dead, syscall.SIGKILL))
	Until(30, "the server is back", func() bool {
		id := process()
		return id != 0 && id != dead && client.Ping(ctx).Err() == nil
	})
}
