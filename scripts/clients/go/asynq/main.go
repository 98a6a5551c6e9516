// asynq with several workers: hundreds of tasks over a server that is killed in between, retries, delays, unique tasks,
// groups, a schedule, tasks that fail for good, and a worker that is killed and whose task another takes over.
//
//	asynq PORT ...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"programs/server"
)

const tasks = 400

var (
	ctx   = context.Background()
	at    = asynq.RedisClientOpt{Addr: "127.0.0.1:" + os.Args[1]}
	notes = server.Client(os.Args[1])
	alive []io.Closer // The workers end when these are closed.
)

// handle notes that the task ran, and fails as often as its payload says.
func handle(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	runs, err := notes.Incr(ctx, "ran:"+id).Result()
	if err != nil {
		return err
	}
	failures, err := strconv.Atoi(string(task.Payload()))
	if err != nil {
		return err
	}
	if int(runs) <= failures {
		return fmt.Errorf("fails in run %d", runs)
	}
	_, err = task.ResultWriter().Write([]byte("did " + id))
	return err
}

// work is a worker in a process of its own, which ends with the process that started it.
func work(kind string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	queues := map[string]int{"critical": 5, "default": 1}
	if kind == "hanging" {
		queues = map[string]int{"orphans": 1}
	} else if kind == "heir" {
		queues = map[string]int{"orphans": 1, "default": 1}
	}
	workers := asynq.NewServer(at, asynq.Config{
		Concurrency:              5,
		Queues:                   queues,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		GroupGracePeriod:         time.Second,
		GroupMaxSize:             10,
		GroupAggregator: asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			sum := 0
			for _, task := range tasks {
				n, _ := strconv.Atoi(string(task.Payload()))
				sum += n
			}
			return asynq.NewTask("sum", []byte(strconv.Itoa(sum)))
		}),
		LogLevel: asynq.FatalLevel,
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc("work", handle)
	mux.HandleFunc("tick", func(ctx context.Context, _ *asynq.Task) error { return notes.Incr(ctx, "ticks").Err() })
	mux.HandleFunc("sum", func(ctx context.Context, task *asynq.Task) error {
		return notes.RPush(ctx, "sums", task.Payload()).Err()
	})
	mux.HandleFunc("orphan", func(ctx context.Context, task *asynq.Task) error {
		if kind == "hanging" {
			server.Must(notes.Incr(ctx, "hangs").Err())
			select {}
		}
		return handle(ctx, task)
	})
	server.Must(workers.Run(mux))
}

func start(kind string) *exec.Cmd {
	command := exec.Command(os.Args[0], os.Args[1], kind)
	command.Stderr = os.Stderr
	pipe, err := command.StdinPipe()
	server.Must(err)
	alive = append(alive, pipe)
	server.Must(command.Start())
	return command
}

func enqueue(client *asynq.Client, kind, payload string, options ...asynq.Option) string {
	options = append(options, asynq.Retention(time.Hour))
	info, err := client.Enqueue(asynq.NewTask(kind, []byte(payload)), options...)
	server.Must(err)
	return info.ID
}

func runs(id string) int {
	count, err := notes.Get(ctx, "ran:"+id).Int()
	server.Check(err == nil || errors.Is(err, redis.Nil), "%v", err)
	return count
}

// completed waits until all tasks of a queue are done, and checks what they left.
func completed(inspector *asynq.Inspector, queue string, ids []string) {
	for _, id := range ids {
		server.Until(60, "task "+id+" is done", func() bool {
			info, err := inspector.GetTaskInfo(queue, id)
			return err == nil && info.State == asynq.TaskStateCompleted
		})
		info, err := inspector.GetTaskInfo(queue, id)
		server.Must(err)
		server.Check(string(info.Result) == "did "+id, "task %s left %q", id, info.Result)
	}
}

// bulk: everything is done, although the server dies amid of it.
func bulk(client *asynq.Client, inspector *asynq.Inspector) {
	ids := map[string][]string{}
	for n := 0; n < tasks; n++ {
		queue, failures := "default", "0"
		var options []asynq.Option
		if n%4 == 0 {
			queue = "critical"
		}
		if n%10 == 0 {
			failures = "2"
		}
		if n%7 == 0 {
			options = append(options, asynq.ProcessIn(time.Second))
		}
		options = append(options, asynq.Queue(queue), asynq.MaxRetry(5))
		ids[queue] = append(ids[queue], enqueue(client, "work", failures, options...))
	}
	for n := 0; n < 2; n++ {
		start("worker")
	}
	server.Until(60, "sixty tasks are done", func() bool {
		info, err := inspector.GetQueueInfo("critical")
		return err == nil && info.Completed > 60
	})
	server.Kill(os.Args[1])
	again := 0
	for _, queue := range []string{"critical", "default"} {
		completed(inspector, queue, ids[queue])
		info, err := inspector.GetQueueInfo(queue)
		server.Must(err)
		server.Check(info.Pending+info.Active+info.Retry+info.Scheduled+info.Archived == 0, "%s: %+v", queue, info)
		server.Check(info.Completed == len(ids[queue]), "%s: %+v", queue, info)
	}
	for n := 0; n < tasks; n++ {
		queue, expected := "default", 1
		if n%4 == 0 {
			queue = "critical"
		}
		if n%10 == 0 {
			expected = 3
		}
		id := ids[queue][0]
		ids[queue] = ids[queue][1:]
		server.Check(runs(id) >= expected, "task %s ran %d times", id, runs(id))
		if runs(id) > expected {
			again++
		}
	}
	server.Check(again <= 10, "%d tasks ran again, and 10 at most had begun when the server died", again)
}

func failures(client *asynq.Client, inspector *asynq.Inspector) {
	id := enqueue(client, "work", "2", asynq.MaxRetry(1))
	server.Until(60, "the task has failed", func() bool {
		info, err := inspector.GetTaskInfo("default", id)
		return err == nil && info.State == asynq.TaskStateArchived
	})
	info, err := inspector.GetTaskInfo("default", id)
	server.Must(err)
	server.Check(info.LastErr == "fails in run 2", "the task's error is %q", info.LastErr)
	server.Must(inspector.RunTask("default", id))
	completed(inspector, "default", []string{id})
}

func unique(client *asynq.Client, inspector *asynq.Inspector) {
	options := []asynq.Option{asynq.Unique(time.Minute), asynq.ProcessIn(time.Second), asynq.Retention(time.Hour)}
	first, err := client.Enqueue(asynq.NewTask("work", []byte("0")), options...)
	server.Must(err)
	_, err = client.Enqueue(asynq.NewTask("work", []byte("0")), options...)
	server.Check(errors.Is(err, asynq.ErrDuplicateTask), "a second unique task: %v", err)
	_, err = client.Enqueue(asynq.NewTask("work", []byte("0")), asynq.TaskID(first.ID))
	server.Check(errors.Is(err, asynq.ErrTaskIDConflict), "a second task of the same name: %v", err)
	completed(inspector, "default", []string{first.ID})
	server.Check(runs(first.ID) == 1, "the unique task ran %d times", runs(first.ID))
}

// groups: the server gathers tasks into one.
func groups(client *asynq.Client) {
	for n := 1; n <= 25; n++ {
		enqueue(client, "part", strconv.Itoa(n), asynq.Group("parts"))
	}
	total := func() int {
		sums, err := notes.LRange(ctx, "sums", 0, -1).Result()
		server.Must(err)
		total := 0
		for _, sum := range sums {
			n, err := strconv.Atoi(sum)
			server.Must(err)
			total += n
		}
		return total
	}
	server.Until(60, "the groups are summed", func() bool { return total() == 25*26/2 })
	server.Check(notes.LLen(ctx, "sums").Val() >= 3, "groups of ten at most: %v", notes.LLen(ctx, "sums"))
}

func schedule(inspector *asynq.Inspector) {
	scheduler := asynq.NewScheduler(at, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	_, err := scheduler.Register("@every 1s", asynq.NewTask("tick", nil))
	server.Must(err)
	server.Must(scheduler.Start())
	server.Until(60, "three ticks", func() bool {
		ticks, err := notes.Get(ctx, "ticks").Int()
		return err == nil && ticks >= 3
	})
	server.Until(60, "the schedule is listed", func() bool {
		entries, err := inspector.SchedulerEntries()
		server.Must(err)
		return len(entries) == 1 && entries[0].Spec == "@every 1s"
	})
	scheduler.Shutdown()
}

// pause: a queue that is paused works on nothing.
func pause(client *asynq.Client, inspector *asynq.Inspector) {
	server.Must(inspector.PauseQueue("critical"))
	id := enqueue(client, "work", "0", asynq.Queue("critical"))
	time.Sleep(300 * time.Millisecond)
	server.Check(runs(id) == 0, "a paused queue works")
	server.Must(inspector.UnpauseQueue("critical"))
	completed(inspector, "critical", []string{id})
}

func main() {
	if len(os.Args) == 3 {
		work(os.Args[2])
		return
	}
	client, inspector := asynq.NewClient(at), asynq.NewInspector(at)
	orphan := enqueue(client, "orphan", "0", asynq.Queue("orphans"), asynq.MaxRetry(3))
	hanging := start("hanging")
	server.Until(60, "the task hangs", func() bool { return notes.Get(ctx, "hangs").Val() == "1" })
	server.Must(hanging.Process.Kill())
	died := time.Now()

	bulk(client, inspector)
	failures(client, inspector)
	unique(client, inspector)
	groups(client)
	schedule(inspector)
	pause(client, inspector)

	// A lease is 30 seconds long, and counts as lost 30 seconds later. A worker looks for lost ones when it starts.
	info, err := inspector.GetTaskInfo("orphans", orphan)
	server.Must(err)
	server.Check(info.State == asynq.TaskStateActive, "the task of the dead worker is %v", info.State)
	time.Sleep(time.Until(died.Add(62 * time.Second)))
	start("heir")
	completed(inspector, "orphans", []string{orphan})
	info, err = inspector.GetTaskInfo("orphans", orphan)
	server.Must(err)
	server.Check(runs(orphan) == 1 && info.Retried == 1, "the task ran %d times, %+v", runs(orphan), info)
	fmt.Printf("asynq: %d tasks, retries, delays, groups, a worker and the server killed, no task lost\n", tasks)
}
