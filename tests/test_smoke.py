import episafe as es


def test_opse_explores_streaming_without_violation():
    cmdp = es.make("streaming", seed=1)
    record = es.run(cmdp, es.OPSE(cmdp.task, es.Constants.paper("streaming")), num_episodes=200)
    assert record.violation()[-1] == 0
    assert (record.sources == "search").any()
