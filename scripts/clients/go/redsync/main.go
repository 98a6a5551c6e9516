// redsync over three servers: workers that exclude each other while one of the servers is killed, extension, expiry.
//
//	redsync PORT PORT PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"

	"programs/server"
)

const workers, rounds = 6, 40

var ctx = context.Background()

func locks() *redsync.Redsync {
	var pools []redis.Pool
	for _, port := range os.Args[1:4] {
		pools = append(pools, goredis.NewPool(server.Client(port)))
	}
	return redsync.New(pools...)
}

// Read, wait, write: what another did in between would be lost.
func exclusion() {
	data := server.Client(os.Args[1])
	var inside, turns atomic.Int32
	var group sync.WaitGroup
	for n := 0; n < workers; n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			mutex := locks().NewMutex("turn", redsync.WithExpiry(5*time.Second), redsync.WithTries(10_000),
				redsync.WithRetryDelayFunc(func(int) time.Duration { return 5 * time.Millisecond }))
			for round := 0; round < rounds; round++ {
				server.Must(mutex.Lock())
				server.Check(inside.Add(1) == 1, "two workers are inside")
				before, err := data.Get(ctx, "count").Int()
				server.Check(err == nil || errors.Is(err, goredis9.Nil), "%v", err)
				time.Sleep(time.Millisecond)
				server.Must(data.Set(ctx, "count", before+1, 0).Err())
				inside.Add(-1)
				held, err := mutex.Unlock()
				server.Check(held, "the lock was lost: %v", err)
				if turns.Add(1) == 60 {
					server.Kill(os.Args[2])
				}
			}
		}()
	}
	group.Wait()
	count, err := data.Get(ctx, "count").Int()
	server.Must(err)
	server.Check(count == workers*rounds, "%d of %d turns were counted", count, workers*rounds)
}

func times() {
	first := locks().NewMutex("timed", redsync.WithExpiry(500*time.Millisecond))
	second := locks().NewMutex("timed", redsync.WithExpiry(5*time.Second), redsync.WithTries(1000),
		redsync.WithRetryDelay(5*time.Millisecond))
	server.Must(first.Lock())
	for n := 0; n < 5; n++ {
		time.Sleep(200 * time.Millisecond)
		var taken *redsync.ErrTaken
		server.Check(errors.As(second.TryLock(), &taken), "the lock is there twice")
		extended, err := first.Extend()
		server.Check(extended, "the lock is not extended: %v", err)
	}
	began := time.Now()
	server.Must(second.Lock())
	server.Check(time.Since(began) > 300*time.Millisecond, "the lock did not wait for its time")
	extended, _ := first.Extend()
	server.Check(!extended, "a lock that is another's was extended")
	released, _ := first.Unlock()
	server.Check(!released, "a lock that is another's was released")
	extended, err := second.Extend()
	server.Check(extended, "the lock is not extended: %v", err)
	released, err = second.Unlock()
	server.Check(released, "the lock is not released: %v", err)
}

func main() {
	exclusion()
	times()
	fmt.Println("redsync: excludes while one of three servers dies, extends, expires")
}
